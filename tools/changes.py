"""What a guard must notice: one number, word, type or comparison, changed.

    expect, raises   each number and each word of the text
    check            of each assertion: its comparison becomes the opposite; so do, in
                     what it claims to be equal, each number, word and type

What a call is given, an index, a tolerance and a bound are left alone: an assertion may
hold with another one, and still prove what the page says.
"""

import ast
import math
import random
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs/_ext"))

from book import guards

TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d]\w*")
NUMBERS = re.compile(r"(b?float|u?int|complex)\d+")
OPPOSITES = [(ast.Eq, ast.NotEq), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE)]
OPPOSITES += [(ast.In, ast.NotIn), (ast.Is, ast.IsNot)]  # codespell:ignore notin
OPPOSITE = dict(OPPOSITES) | {new: old for old, new in OPPOSITES}
CLAIMED = {  # the fields of a value in which it states something
    ast.Call: (),
    ast.DictComp: ("key", "value"),
    ast.FormattedValue: (),
    ast.GeneratorExp: ("elt",),
    ast.Lambda: (),
    ast.ListComp: ("elt",),
    ast.SetComp: ("elt",),
    ast.Subscript: ("value",),
}


def changed(token) -> str:
    """Return another number for a number, and another word for a word."""
    if token[0].isdigit():
        last = int(token[-1])
        return token[:-1] + str(last + 1 if last < 9 else 8)
    return f"{token}x"


def of_text(text):
    """Yield a text with one number or word changed, for each of them."""
    for found in TOKEN.finditer(text):
        yield text[: found.start()] + changed(found[0]) + text[found.end() :]


def of_code(code) -> list[tuple[str, str]]:
    """Return for each change of an assertion its new text, and the whole new code."""
    magic, tree = guards.parsed(code)
    found = []
    for claim in guards.claims(tree):
        for old, new in edits(claim):
            _Swap(old, new).visit(tree)
            found.append((ast.unparse(claim), magic + ast.unparse(tree)))
            _Swap(new, old).visit(tree)
    return found


def of_page(page) -> list[tuple[str, tuple[str, str]]]:
    """Return the changes of all checks of a page, each with the id of its cell."""
    return [
        (f"cell-{number}", change)
        for number, cell in enumerate(page.cells, 1)
        if "check" in cell.options
        for change in of_code(cell.source)
    ]


def sample(page, percent, seed) -> dict[str, list[tuple[str, str]]]:
    """Return a part of the changes of a page, by cells; a seed fixes which."""
    every = of_page(page)
    count = math.ceil(len(every) * percent / 100)
    found = {}
    for cell, change in random.Random(seed).sample(every, count):
        found.setdefault(cell, []).append(change)
    return found


class _Swap(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        """Return the new node for the old one, and leave others as they are."""
        return self.new if node is self.old else self.generic_visit(node)


def edits(claim):
    """Yield parts of an assertion, each with what shall stand in its place."""
    if isinstance(claim, ast.Assert):
        yield from opposites(claim.test)
    elif guards.called(claim).startswith("assert_"):
        for value in claim.args[:2]:
            yield from others(value)
        yield claim.args[1], moved(claim.args[1])


def opposites(test):
    """Yield the parts of a test, each with one that is false where it is true."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from opposites(part)
    elif isinstance(test, ast.Compare):
        yield from comparisons(test)
    elif isinstance(test, ast.Call) and guards.called(test) == "all":
        values = test.args[0] if test.args else test.func.value  # all(x), (x).all()
        yield from opposites(getattr(values, "elt", values))
    else:
        yield test, ast.UnaryOp(ast.Not(), test)


def comparisons(test):
    """Yield a comparison with each operator turned, and with other equal values."""
    left = test.left
    for n, (op, right) in enumerate(zip(test.ops, test.comparators, strict=True)):
        ops = [*test.ops[:n], OPPOSITE[type(op)](), *test.ops[n + 1 :]]
        yield test, ast.Compare(test.left, ops, test.comparators)
        if isinstance(op, (ast.Eq, ast.Is, ast.In)):
            yield from others(left)
        if isinstance(op, (ast.Eq, ast.Is)):
            yield from others(right)
        left = right


def others(value):
    """Yield each number, word and type that a value states, with another one."""
    if isinstance(value, ast.Constant):
        yield from ((value, ast.Constant(new)) for new in constants(value.value))
    elif isinstance(value, (ast.Attribute, ast.Name)):
        yield from another_type(value)
    for part in stated(value):
        yield from others(part)


def constants(value):
    """Yield other constants of the same kind; a boolean has its opposite."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield from [*of_text(value)] or [f"{value}x"]
    elif isinstance(value, (int, float)):
        yield type(value)(changed(repr(value)))


def another_type(node):
    """Yield the name of a type or of an error, with another one."""
    name = guards.named(node)
    if name.endswith("Error"):
        yield node, ast.Name("ValueError" if name == "KeyError" else "KeyError")
    elif NUMBERS.fullmatch(name):
        new = "float32" if name == "int32" else "int32"
        is_name = isinstance(node, ast.Name)
        yield node, ast.Name(new) if is_name else ast.Attribute(node.value, new)


def stated(value):
    """Yield the parts of a value in which it states something."""
    fields = CLAIMED.get(type(value), value._fields)
    if isinstance(value, ast.Call) and guards.called(value)[:1].isupper():
        fields = "args", "keywords"  # a class makes a value of what it is given
    for name in fields:
        part = getattr(value, name)
        parts = part if isinstance(part, list) else [part]
        yield from (each for each in parts if isinstance(each, ast.AST))


def moved(value):
    """Return twice a value and one: what no tolerance takes for the value."""
    twice = ast.BinOp(ast.Constant(2), ast.Mult(), value)
    return ast.BinOp(ast.Constant(1), ast.Add(), twice)
