"""Where the time went is printed beside what it may be."""

import seconds


def test_a_step_that_takes_longer_than_it_may_is_marked():
    lines = seconds.report({"docs": 300, "links": 300, "all": 1500}, {})
    marked = [line.split()[1] for line in lines if "more than 240" in line]
    assert marked == ["docs"]
    assert not any("more than" in line for line in lines if "all" in line)


def test_each_later_page_may_add_some_seconds():
    pages = {f"part/{i}": [1.0, 2.0] for i in range(seconds.PAGES + 15)}
    lines = seconds.report({"docs": 300, "all": 1651}, pages)
    assert [line for line in lines if "more than" in line] == [
        "   1651  all  more than 1650, see CONTRIBUTING"
    ]


def test_the_slowest_pages_come_first_below_the_sums():
    pages = {"a/slow": [3.0, 40.0], "a/quick": [1.0, 2.0], "a/middle": [30.0, 4.0]}
    names = [line.split()[-1] for line in seconds.report({}, pages)[2:]]
    assert names == ["all", "a/slow", "a/middle", "a/quick"]
    assert seconds.report({}, pages)[2].split()[:2] == ["34.0", "46.0"]
