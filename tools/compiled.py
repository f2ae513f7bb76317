"""Keep what XLA compiles, for the site, the notebooks and the tests alike.

`keep(folder)` switches JAX's persistent cache on, and keeps programs with one
collective at most: read back from it, a program of XLA:CPU with several may wait for
itself, since its devices no longer meet in one order (jax 0.12.0.1). A kept program is
the same: its counts, bytes and memory, too. What is kept is keyed by the program, JAX,
its options, XLA's flags, and what this processor can do.
Tests call it, and kernels as soon as a cell has imported JAX (`book/kernels.py`);
processes that a page or a test starts compile for themselves.
"""

import hashlib
import os
import platform
import re
import tempfile
from pathlib import Path

import jax
from jax._src import compilation_cache, lru_cache

FOLDER = Path(__file__).resolve().parents[1] / ".cache/compiled"
KINDS = "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute"
COLLECTIVE = re.compile(rf" (?:{KINDS}|ragged-all-to-all|reduce-scatter)(?:-start)?\(")


def processor() -> str:
    """Digest what this processor can do: code compiled for another may not run here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    able = {line for line in lines if line.startswith(("flags", "Features"))}
    text = "\n".join([platform.machine(), platform.processor(), *sorted(able)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_safe(executable) -> bool:
    """Tell whether a program may be read back: it has one collective at most."""
    texts = (module.to_string() for module in executable.hlo_modules())
    return sum(len(COLLECTIVE.findall(text)) for text in texts) <= 1


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
