# SPDX-License-Identifier: MIT-0
"""Tables: results that print in aligned columns, and show as a table on a page.

The first cell of a row is its name. A column with a number in it is aligned to the
right, and its numbers are grouped by thousands.

    head    the headings, one text for each column
    rows    texts and numbers, as many as there are headings

On a page a table scrolls when it is too wide, and screen readers find its headings. A
cell of several lines shows the first, and opens to the others. A cell that begins with
the sign ≠ is set off. Under more than five headings all cells break into lines.

    python tables.py

Copy this file alone: it needs only Python.
"""

import html
import re
from collections.abc import Iterable
from numbers import Real

LINE = "white-space: nowrap"
WORDS = "white-space: normal; min-width: 18rem"
BROKEN = "white-space: normal"
NAME = f"{BROKEN}; min-width: 9rem"
MANY = 5  # columns whose cells may stand on one line each; of more, all are broken
LONG = 40  # characters that stand on one line; a longer cell is broken into several


class Table:
    """Rows under headings; `head` and `rows` hold them as texts."""

    def __init__(self, head: Iterable[str], rows: Iterable[Iterable], label="Table"):
        """Take headings, rows of as many cells, and a label for screen readers.

        Raises ValueError for a row with more cells than headings, or fewer.
        """
        self.head, self.label, rows = [*head], label, [[*row] for row in rows]
        for row in rows:
            if len(row) != len(self.head):
                count = f"{len(row)} cells under {len(self.head)} headings"
                raise ValueError(f"{count}: pass as many, in the row {row}")
        columns = zip(self.head, *rows, strict=True)
        self.sides = ["right" if any(map(is_number, c)) else "left" for c in columns]
        self.rows = [[*map(text_of, row)] for row in rows]

    def __repr__(self) -> str:
        """Return aligned columns."""
        lines = [self.head, *self.rows]
        lines = [[cell.replace("\n", ": ") for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        forms = [
            f"{{:{'>' if side == 'right' else '<'}{width}}}"
            for side, width in zip(self.sides, widths, strict=True)
        ]
        return "\n".join("  ".join(forms).format(*line).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head = (
            f'<th scope="col" style="text-align: {side}">{html.escape(cell)}</th>'
            for side, cell in zip(self.sides, self.head, strict=True)
        )
        body = "".join(f"<tr>{''.join(self._cells(row))}</tr>" for row in self.rows)
        return (
            '<div style="overflow-x: auto" role="region" tabindex="0" '
            f'aria-label="{html.escape(self.label)}"><table class="named">'
            f"<thead><tr>{''.join(head)}"
            f"</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _cells(self, row: list[str]) -> list[str]:
        name, style, place = html.escape(row[0]), LINE, LINE
        if len(self.head) > MANY:  # a name breaks after a dot or a bracket
            name, style, place = re.sub(r"([.(])", r"\1<wbr>", name), BROKEN, NAME
        first = f'<th scope="row" style="text-align: left; {place}">'
        pairs = zip(self.sides[1:], row[1:], strict=True)
        cells = (html_cell(side, cell, style) for side, cell in pairs)
        return [f"{first}<code>{name}</code></th>", *cells]


def is_number(cell) -> bool:
    """Return whether a cell is a number; True and False are words."""
    return isinstance(cell, Real) and not isinstance(cell, bool)


def text_of(cell) -> str:
    """Return a cell as a text, a number with commas between thousands."""
    return f"{cell:,.15g}" if is_number(cell) else str(cell)


def html_cell(side: str, text: str, style: str = LINE) -> str:
    """Return a cell in HTML, which opens to what follows the first line."""
    short, _, more = map(html.escape, text.partition("\n"))
    if more:
        more = f'<div style="{WORDS if style == LINE else BROKEN}">{more}</div>'
        short = f'<summary style="{LINE}">{short}</summary>'
        short = f"<details>{short}{more}</details>"
    elif len(text) > LONG and style == LINE:
        style = WORDS
    mark = ' class="differs"' if text.startswith("≠") else ""
    return f'<td{mark} style="text-align: {side}; {style}">{short}</td>'


def main():
    """Print a table of powers."""
    print(Table(["number", "squared"], [["seven", 7**2], ["a thousand", 1000**2]]))


if __name__ == "__main__":
    main()
