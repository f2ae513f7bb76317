"""Rows print aligned, and show as HTML that a screen reader understands."""

import numpy as np
import pytest

from examples.tables import Table


def test_a_table_aligns_and_escapes():
    shown = Table(["a", "b"], [["x < 1", 2], ["y", 30]])
    assert str(shown).splitlines() == ["a       b", "x < 1   2", "y      30"]
    assert "<code>x &lt; 1</code>" in shown._repr_html_()
    assert shown._repr_html_().count('<th scope="col"') == 2
    assert shown._repr_html_().count('<th scope="row"') == 2


def test_a_column_with_a_number_is_aligned_to_the_right():
    numbers = [1234567, 0.5, 7.0, np.int64(1000), np.float32(0.25), 12345678901234]
    shown = Table(["a", "b", "c"], [["x", n, True] for n in [*numbers, "unknown"]])
    cells = [row[1] for row in shown.rows]
    words = "1,234,567 0.5 7 1,000 0.25 12,345,678,901,234 unknown"
    assert cells == words.split()
    assert shown.sides == ["left", "right", "left"]
    assert len({line.index("True") for line in str(shown).splitlines()[1:]}) == 1
    assert shown._repr_html_().count("text-align: right") == len(numbers) + 2


def test_a_long_cell_is_folded_after_its_first_line():
    shown = Table(["a", "b"], [["x", "TypeError\nIt is < 1."]])
    assert str(shown).splitlines()[1] == "x  TypeError: It is < 1."
    assert ">TypeError</summary>" in shown._repr_html_()
    assert ">It is &lt; 1.</div></details>" in shown._repr_html_()


def test_a_table_of_many_columns_breaks_its_cells():
    row = ["jnp.f(x)", *["w " * 30] * 4, "a\nb"]
    few, many = (
        Table(row[-n:], [row[:1] + row[1 - n :]])._repr_html_() for n in (5, 6)
    )
    assert "min-width: 18rem" in few
    assert "white-space: normal" in few  # of a long line
    assert "<wbr>" not in few
    assert "min-width: 18rem" not in many
    assert "<code>jnp.<wbr>f(<wbr>x)</code>" in many
    assert '<summary style="white-space: nowrap">a</summary>' in many


def test_a_cell_that_differs_is_set_off_and_a_table_may_have_a_label():
    shown = Table(["a", "b", "c"], [["x", "≠ 2", "3 ≠ 2"]], label='"B" & C')
    assert str(shown).splitlines()[1] == "x  ≠ 2  3 ≠ 2"
    assert shown._repr_html_().count('<td class="differs"') == 1
    assert 'aria-label="&quot;B&quot; &amp; C"' in shown._repr_html_()
    assert str(Table(["a", "b"], [])) == "a  b"


@pytest.mark.parametrize("row", [[1], [1, 2, 3]])
def test_a_row_with_other_cells_than_headings_is_refused(row):
    words = rf"{len(row)} cells under 2 headings: pass as many, in the row \["
    with pytest.raises(ValueError, match=words):
        Table(["a", "b"], [[3, 4], row])
