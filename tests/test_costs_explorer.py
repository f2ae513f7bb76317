"""What the calculator looks up is what `ring_cost` counts, for each choice."""

import json

import explorer_costs
import explorers
import pytest
from explorer_costs import hows, networks, tables, time, with_algorithm
from tiny_site import Site

from examples.ring_cost import KINDS, MACHINES, hops, least, link_load

DATA = json.loads(explorers.script("costs").partition(" = ")[2].removesuffix(";\n"))


def test_every_choice_has_the_counts_of_the_module():
    chosen = 0
    for name, (alpha, beta, shapes, sources) in networks().items():
        network = DATA["networks"][name]
        assert (network["alpha"], network["beta"]) == (alpha, beta)
        assert [address for _, address in network["sources"]] == [*sources]
        assert [*network["shapes"]] == [str(count) for count in shapes]
        for count, axes in shapes.items():
            for how in hows(axes):
                rows = network["counts"][how][str(count)]
                for kind, row in zip(DATA["kinds"], rows, strict=True):
                    own = with_algorithm(axes, how)
                    far, needed = least(kind, own)
                    assert row[:4:3] == [hops(kind, own), far]
                    assert row[1] == row[2] * link_load(kind, own)
                    assert row[4] == row[5] * needed
                    chosen += 1
    assert chosen > 400


def test_a_link_carries_a_whole_number_of_bytes_that_scripts_know_exactly():
    """Or else its product with the largest operand would be rounded twice."""
    for network in DATA["networks"].values():
        for sizes in network["counts"].values():
            for rows in sizes.values():
                assert all(row[1] * 2**40 < 2**53 for row in rows)


def test_machines_are_shown_before_networks_whose_link_is_invented():
    assert [*DATA["networks"]][: DATA["machines"]] == [*MACHINES]
    assert all(DATA["networks"][name]["sources"] for name in MACHINES)
    assert [*DATA["kinds"]] == [*KINDS]


def test_a_doubling_is_offered_where_there_is_a_switch():
    for name, network in DATA["networks"].items():
        asked = ["switch", "doubling"] if "switch" in str(network["shapes"]) else [""]
        assert [*network["counts"]] == asked, name


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 µs"),
        (1e-6, "1 µs"),
        (9.999e-4, "1,000 µs"),
        (1e-3, "1 ms"),
        (2.5, "2.5 s"),
    ],
)
def test_a_time_in_words(seconds, words):
    assert time(seconds) == words


def test_tables_stand_there_without_script(tmp_path):
    page = "# Costs\n\n```{explorer} costs\n```\n"
    site = Site(
        tmp_path,
        {"index.md": page},
        extensions=["myst_nb", "explorers"],
        nb_execution_mode="off",
    )
    assert not site.warnings
    html = site("index.html")
    assert html.count("<tr") == sum(map(len, tables().values()))
    assert "12: 15.8 µs" in html  # an all-reduce on 4 x 4 x 4
    assert site("_static/explorers/costs.js") == explorers.script("costs")


def test_each_row_of_a_table_is_as_wide_as_its_head():
    for rows in tables().values():
        assert len({len(row) for row in rows}) == 1
    assert len(explorers.script("costs").encode()) < 40 * 1024
    assert explorer_costs.SOURCE.name == "ring_cost.py"
