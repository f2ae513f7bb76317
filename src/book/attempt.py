"""Run answers to exercises in the kernel of a page: see exercises.py."""

import ast
import json
import linecache
import re
import sys
import traceback

import jax
from IPython import get_ipython


def run_answers(sources, names) -> str:
    """Run each of these cells on a copy of the names; return the outcomes as JSON."""
    hooks = getattr(sys.modules.get("examples.communication"), "ELSEWHERE", [])
    before, hooks[:] = hooks[:], []  # the programs of an answer are not the page's
    outcomes = [run_answer(source, dict(names)) for source in sources]
    hooks[:] = before
    return json.dumps(outcomes)


def run_answer(source, names) -> dict:
    """Run a cell, and restore the mesh; return its verdict, or the traceback."""
    mesh = jax.sharding.get_mesh()
    try:
        verdict = run_cell(source, names)
        shown = verdict._repr_html_() and str(verdict)
        return {"passed": bool(verdict.passed), "text": shown}
    except Exception:
        return {"error": traceback.format_exc(limit=-3)}
    finally:
        if jax.sharding.get_mesh() != mesh:
            jax.set_mesh(mesh)


def run_cell(source, names):
    """Run a cell among `names`; return the value of its last expression."""
    if magic := re.match(r"%%every(.*)\n", source):  # as IPython calls it
        return get_ipython().run_cell_magic("every", magic[1], source[magic.end() :])
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    file = f"<answer {len(linecache.cache)}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(tree, file, "exec"), names)
    return eval(compile(last, file, "eval"), names) if last else None
