"""Keep what XLA compiles, for the site, the notebooks and the tests alike.

`keep(folder)` switches JAX's persistent cache on, and keeps the programs whose
collectives have one order when they are read back. XLA:CPU gives all collectives of a
program one resource, so that each device comes to them in the order of the program.
What it writes tells this of the collectives of one computation, and not of those in its
loops, calls and branches (`thunk_proto_serdes.cc`): read back, a loop with collectives
and a collective beside it may be met in two orders, and then wait for each other
(jax 0.12.0.1). Such a program is kept only if one of them needs what the other wrote.

A kept program is the same: its counts, bytes and memory, too. What is kept is keyed by
the program, JAX, its options, XLA's flags, and what this processor can do.
Tests call it, and kernels as soon as a cell has imported JAX (`book/kernels.py`);
processes that a page or a test starts compile for themselves.
"""

import functools
import hashlib
import operator
import os
import platform
import re
import tempfile
from pathlib import Path

import jax
from jax._src import compilation_cache, lru_cache

FOLDER = Path(__file__).resolve().parents[1] / ".cache/compiled"
KINDS = "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute"
COLLECTIVE = re.compile(rf"(?:{KINDS}|ragged-all-to-all|reduce-scatter)(?:-start)?")
NAME = re.compile(r"%([\w.-]+)")
LINE = re.compile(r"  (ROOT )?%([\w.-]+) = .*? ([a-z][a-z0-9-]*)\(([^)]*)\)(.*)")
INDEX = re.compile(r"index=(\d+)")
LOOP = re.compile(r"condition=%([\w.-]+), body=%([\w.-]+)")
PASSES = "bitcast", "copy", "opt-barrier"  # may hand on what another wrote
UNKNOWN = "call", "conditional"  # of what these read and write, nothing is concluded
WRITTEN, PARTS, MET = 1, 1, 1000  # bits: written here; parts of the argument; meetings


def processor() -> str:
    """Digest what this processor can do: code compiled for another may not run here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    able = {line for line in lines if line.startswith(("flags", "Features"))}
    text = "\n".join([platform.machine(), platform.processor(), *sorted(able)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Computation:
    """What a computation reads and writes, and whether its meetings have one order.

    A value is a number, a bit for each thing that it needs, or a list of such for a
    tuple; a meeting is a collective, or what holds one, such as a loop.
    """

    def __init__(self, known):
        """`known` are the computations that this one may call, by name."""
        self.known, self.values, self.value = known, {}, 0
        self.reads, self.meetings, self.is_ordered = 0, [], True

    def add(self, line):
        """Take one instruction."""
        root, name, kind, given, more = line.groups()
        direct, mine = bool(COLLECTIVE.fullmatch(kind)), 0
        called = [self.known[c] for c in NAME.findall(more) if c in self.known]
        if meets := direct or any(each.meetings for each in called):
            mine = 1 << MET + len(self.meetings)
        given = [self.values.get(each, 0) for each in NAME.findall(given)]
        needs, value = self.flow(kind, given, more, mine)
        if meets:
            ordered = not self.meetings or (direct and self.meetings[-1])
            self.is_ordered &= bool(ordered or needs & mine >> 1)
            self.meetings.append(direct)
        self.reads |= needs
        self.values[name] = value
        if root:
            self.value = value

    def flow(self, kind, given, more, mine):
        """Return what an instruction reads, and its value; `mine` is its own bit."""
        if kind == "parameter":
            return 0, [1 << PARTS + i for i in range(MET - PARTS)]
        if kind == "get-tuple-element":
            (whole,) = given
            number = int(INDEX.search(more)[1])
            return 0, whole[number] if isinstance(whole, list) else whole
        if kind == "while":
            return self.loop(given[0], more, mine)
        return simple(kind, [0 if isinstance(g, list) else g for g in given], mine)

    def loop(self, given, more, mine):
        """Return the same of a loop: it reads and writes what its body does."""
        condition, body = (self.known[name] for name in LOOP.search(more).groups())
        if not isinstance(given, list) or not isinstance(body.value, list):
            return 0, 0
        reads = (condition.reads | body.reads) >> PARTS
        needs = union(part for i, part in enumerate(given) if reads >> i & 1)
        pairs = zip(given, body.value, strict=False)  # a parameter has parts to spare
        new = needs | mine | WRITTEN
        return needs, [part | new if end & WRITTEN else part for part, end in pairs]


def union(parts) -> int:
    """Return what any of these parts needs."""
    return functools.reduce(operator.or_, parts, 0)


def simple(kind, given, mine):
    """Return what an instruction reads that holds no loop, and its value."""
    if kind == "tuple":
        return 0, given
    if kind in UNKNOWN:
        return 0, 0
    needs = union(given)
    return (0, needs) if kind in PASSES else (needs, needs | mine | WRITTEN)


def is_ordered(text: str) -> bool:
    """Tell from a program's text whether its collectives keep one order."""
    known = {}
    for line in text.splitlines() if COLLECTIVE.search(text) else ():
        if line.endswith("{") and not line.startswith(" "):
            own = Computation(known)
            known[NAME.search(line)[1]] = own
        elif known and (found := LINE.match(line)):
            own.add(found)
    return all(each.is_ordered for each in known.values())


def is_safe(executable) -> bool:
    """Tell whether a program may be read back."""
    return all(is_ordered(module.to_string()) for module in executable.hlo_modules())


def put(cache, key, value):
    """Write an entry whole, so that no other process reads half of it."""
    with tempfile.NamedTemporaryFile(dir=cache.path, delete=False) as file:
        file.write(value)
    os.replace(file.name, Path(cache.path, f"{key}-cache"))


def keep(folder=FOLDER):
    """Keep the programs that this process compiles from now on, and use those kept."""
    write = compilation_cache.put_executable_and_time

    def put_if_safe(key, name, executable, *more):
        if is_safe(executable):
            write(key, name, executable, *more)

    compilation_cache.put_executable_and_time = put_if_safe
    lru_cache.LRUCache.put = put
    compilation_cache.reset_cache()  # it may have looked before there was a folder
    jax.config.update("jax_compilation_cache_dir", str(Path(folder, processor())))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
