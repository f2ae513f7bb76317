"""Count the claims of cells: for the front page, and to compare editions."""

import ast
import re

from book import guards

LITERALS = ast.Dict, ast.List, ast.Set, ast.Tuple
TYPE = re.compile(r"\w+\[[^\]\s]*\]")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
WORD = re.compile(r"[^\W\d_][\w'\u2019-]*")


def count_claims(cell) -> int:
    """Count the claims of a cell that fail the build where they are false.

    That is each comparison of an assertion, or each element of a tuple, list or dict
    that it compares; each `require` and `assert_...`; each number or type of an
    expected line, or one for a line of words; each error that must come.
    """
    _, tree = guards.parse_cell(cell.source)
    found = sum(count_comparisons(claim) for claim in guards.find_claims(tree))
    found += "raises" in cell.options
    return found + sum(map(count_tokens, cell.options.get("expect", "").splitlines()))


def count_comparisons(claim) -> int:
    """Count the comparisons of an assertion; one without any is one."""
    if not isinstance(claim, ast.Assert):
        return 1
    nodes = [n for n in ast.walk(claim.test) if isinstance(n, ast.Compare)]
    return sum(map(count_values, nodes)) or 1


def count_values(node) -> int:
    """Count the values that a comparison compares."""
    sides = [node.left, *node.comparators]
    count = 0
    for n, how in enumerate(node.ops):
        sizes = [size(side) for side in sides[n : n + 2] if isinstance(side, LITERALS)]
        count += max([1, *sizes]) if isinstance(how, ast.Eq) else 1
    return count


def size(literal) -> int:
    """Count the elements of a tuple, a list, a set or a dict."""
    return len(literal.keys if isinstance(literal, ast.Dict) else literal.elts)


def count_tokens(line) -> int:
    """Count the types and the numbers of an expected line; words alone are one."""
    line = line.replace("...", " ")
    rest, types = TYPE.subn(" ", line)
    return types + len(NUMBER.findall(rest)) or bool(WORD.search(line))
