"""Names of JAX, NumPy and Python lead to their published documentation."""

import inventories
import pytest

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


def kept(project):
    """Read an inventory of the repository."""
    return inventories.read((inventories.FOLDER / f"{project}.inv").read_bytes())


@pytest.mark.parametrize("project", PLACES)
def test_the_names_of_the_book_resolve(project):
    names = kept(project)
    missing = PLACES[project].keys() - names.keys()
    assert not missing


@pytest.mark.parametrize("project", PLACES)
def test_names_made_from_the_packages_have_the_published_addresses(project):
    _, _, names = inventories.PROJECTS[project]
    made = inventories.named(names())
    assert {name: made[name][1] for name in PLACES[project]} == PLACES[project]


@pytest.mark.parametrize("project", PLACES)
def test_an_inventory_is_small(project):
    assert (inventories.FOLDER / f"{project}.inv").stat().st_size < 60_000


def test_writing_and_reading_gives_the_names_back():
    names = {"a.b": ("py:function", "x.html#a.b"), "a": ("py:module", "x.html")}
    data = inventories.write("A", "1", names)
    assert inventories.read(data) == names
    assert inventories.write("A", "1", names) == data


def test_the_first_place_of_a_name_stays():
    names = [("a", "py:class", "public.html"), ("a", "py:class", "private.html")]
    assert inventories.named(names) == {"a": ("py:class", "public.html")}


def test_published_places_win_and_the_rest_leads_to_the_page_of_the_module():
    local = {
        "a": ("py:module", "a.html"),
        "a.known": ("py:function", "guess.html#a.known"),
        "a.hidden": ("py:function", "guess.html#a.hidden"),
    }
    remote = {
        "a": ("py:module", "a.html#module-a"),
        "a.known": ("py:function", "api.html#a.known"),
        "a.deep.thing": ("py:function", "api.html#a.deep.thing"),
    }
    assert inventories.merged(local, remote) == {
        "a": ("py:module", "a.html#module-a"),
        "a.known": ("py:function", "api.html#a.known"),
        "a.hidden": ("py:function", "a.html"),
    }


def test_without_a_network_nothing_is_published(monkeypatch, capsys):
    def refuse(*_, **__):
        raise inventories.urllib.error.URLError("no network")

    monkeypatch.setattr(inventories.urllib.request, "urlopen", refuse)
    assert inventories.published("https://docs.example") is None
    assert "made from the installed package" in capsys.readouterr().out
