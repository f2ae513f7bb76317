"""Names of JAX, NumPy and Python lead to their published documentation."""

import re
from urllib.error import URLError

import inventories
import pytest
import sphobjinv
from tiny_site import Site

FOLDER = inventories.DOCS / "_inventories"
ADDRESS = "https://{}.example"

JAX = "_autosummary/{0}.html#{0}".format
PLACES = {
    "jax": {
        "jax.jit": JAX("jax.jit"),
        "jax.Array": JAX("jax.Array"),
        "jax.Array.addressable_shards": JAX("jax.Array.addressable_shards"),
        "jax.make_mesh": JAX("jax.make_mesh"),
        "jax.numpy.sum": JAX("jax.numpy.sum"),
        "jax.lax.with_sharding_constraint": JAX("jax.lax.with_sharding_constraint"),
        "jax.tree.map": JAX("jax.tree.map"),
        "jax.random.key": JAX("jax.random.key"),
        "jax.sharding.NamedSharding": "jax.sharding.html#jax.sharding.NamedSharding",
        "jax.NamedSharding": "jax.sharding.html#jax.sharding.NamedSharding",
        "jax.P": "jax.sharding.html#jax.sharding.PartitionSpec",
        "jax.sharding.AxisType": "jax.sharding.html",
        "jax.reshard": "jax.html",
        "jax.stages.Compiled": "jax.stages.html#jax.stages.Compiled",
        "jax.errors.JaxRuntimeError": "errors.html#jax.errors.JaxRuntimeError",
    },
    "numpy": {
        "numpy.ndarray": "reference/generated/numpy.ndarray.html#numpy.ndarray",
        "numpy.float32": "reference/arrays.scalars.html#numpy.float32",
        "numpy.testing.assert_array_equal": (
            "reference/generated/numpy.testing.assert_array_equal.html"
            "#numpy.testing.assert_array_equal"
        ),
    },
    "python": {
        "int": "library/functions.html#int",
        "tuple": "library/stdtypes.html#tuple",
        "None": "library/constants.html#None",
        "ValueError": "library/exceptions.html#ValueError",
        "pathlib.Path": "library/pathlib.html#pathlib.Path",
        "collections.abc.Callable": (
            "library/collections.abc.html#collections.abc.Callable"
        ),
    },
}


@pytest.mark.parametrize("project", PLACES)
def test_an_inventory_is_small(project):
    assert FOLDER.joinpath(f"{project}.inv").stat().st_size < 60_000


def test_the_names_of_the_book_lead_to_their_places(tmp_path):
    mapping = {name: (ADDRESS.format(name), f"{FOLDER}/{name}.inv") for name in PLACES}
    settings = {
        "extensions": ["myst_nb", "sphinx.ext.intersphinx"],
        "intersphinx_mapping": mapping,
        "nitpicky": True,
    }
    names = (f"{{py:obj}}`{name}`" for names in PLACES.values() for name in names)
    site = Site(tmp_path, {"index.md": "# Names\n\n" + "\n".join(names)}, **settings)
    assert not site.warnings
    found = re.findall(r'href="(https://[^"]*)"', site("index.html"))
    expected = [
        f"{ADDRESS.format(project)}/{place}"
        for project, names in PLACES.items()
        for place in names.values()
    ]
    assert [link for link in found if ".example/" in link] == expected


def inventory(file, **places):
    """Write an inventory of functions; return its file."""
    made = sphobjinv.Inventory()
    made.project, made.version = "A", "1"
    made.objects = [
        sphobjinv.DataObjStr(
            name=name.replace("_", "."),
            domain="py",
            role="function",
            priority="1",
            uri=place,
            dispname="-",
        )
        for name, place in places.items()
    ]
    file.parent.mkdir(exist_ok=True)
    sphobjinv.writebytes(file, sphobjinv.compress(made.data_file(contract=True)))
    return file


def test_published_places_win_and_what_is_not_published_stays(tmp_path):
    file = inventory(
        tmp_path / "a.inv", a="a.html", a_known="a.html", a_hidden="a.html"
    )
    published = inventory(
        tmp_path / "site/objects.inv",
        a="a.html#module-a",
        a_known="api.html#a.known",
        a_new="api.html#a.new",
        a_deep_thing="api.html#a.deep.thing",
    )
    inventories.refresh(file, published.parent.as_uri())
    found = {
        entry.name: entry.uri_expanded for entry in sphobjinv.Inventory(file).objects
    }
    assert found == {
        "a": "a.html#module-a",
        "a.hidden": "a.html",
        "a.known": "api.html#a.known",
        "a.new": "api.html#a.new",
    }


def test_to_refresh_again_gives_the_same_bytes(tmp_path):
    file = inventory(tmp_path / "a.inv", a_b="a.html", a="a.html")
    published = inventory(tmp_path / "site/objects.inv", a_b="b.html", a_a="a.html")
    inventories.refresh(file, published.parent.as_uri())
    first = file.read_bytes()
    inventories.refresh(file, published.parent.as_uri())
    assert file.read_bytes() == first


def test_without_a_network_an_inventory_stays_as_it_is(tmp_path):
    file = inventory(tmp_path / "a.inv", a="a.html")
    before = file.read_bytes()
    with pytest.raises(URLError):
        inventories.refresh(file, (tmp_path / "nowhere").as_uri())
    assert file.read_bytes() == before
