"""Call the modules with anything: `tools/fuzz.py [NAME ...] [--seconds 60] [...]`.

First the kept cases run, then fresh ones are drawn until the time is over; the seed of
each draw is printed. Each half of the work has a process of its own, since a call may
end it. tests/fuzzing/README.md says what a case is, and when a call has failed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 240  # seconds for a case, on a busy machine
WORKERS = 2
CPU = {
    "JAX_NUM_CPU_DEVICES": "12",
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "XLA_FLAGS": "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=900",  # above LIMIT
}


# ------------------------------------------------------- who asks, and counts


class Session:
    """Hands out orders to processes, and gathers what became of the calls."""

    def __init__(self):
        """Begin with nothing."""
        self.orders, self.lock = iter(()), threading.Lock()
        self.counts, self.failures, self.reached = Counter(), [], set()

    def note(self, line):
        """Take in what a process says."""
        with self.lock:
            self.reached |= set(line.get("reached", ()))
            if "outcome" not in line:
                return
            case, outcome = line["case"], line["outcome"]
            word = outcome.partition(" ")[0].partition("\n")[0]
            self.counts[case["target"], word] += 1
            if word == "FAILED":
                self.failures.append((case, outcome))
                print(f"{outcome}\n    --case '{json.dumps(case)}'", flush=True)

    def next_order(self):
        """Return what to do next, or None at the end."""
        with self.lock:
            return next(self.orders, None)

    def draws(self, names, seed, seconds, wanted):
        """Yield orders until the time is over, first for those with few right calls."""
        names, begun = random.Random(seed).sample(names, len(names)), Counter()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            few = [name for name in names if self.counts[name, "right"] < wanted]
            name = min(few or names, key=lambda name: begun[name])
            begun[name] += 1
            seed += 1
            yield {"draw": [name, seed]}

    def serve(self):
        """Let one process after another work, until nothing is left to do."""
        order = self.next_order()
        while order:
            order = self.one_process(order)

    def one_process(self, order):
        """Start a process and give it orders until it ends, or there are no more."""
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, ROOT / "tests/fuzzing/worker.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | CPU,
                text=True,
            )
            try:
                while order:
                    if not self.obeyed(process, order, errors):
                        return self.next_order()
                    order = self.next_order()
            finally:
                process.kill()
                process.wait()
        return None

    def obeyed(self, process, order, errors) -> bool:
        """Give an order; return whether the process is still there after it."""
        print(json.dumps(order), file=process.stdin, flush=True)
        begun, line = {"target": str(order)}, {}
        while "done" not in line:
            alarm = threading.Timer(LIMIT, process.kill)
            alarm.start()
            text = process.stdout.readline()
            alarm.cancel()
            if not text:
                errors.seek(0)
                why = (
                    f"FAILED the process died or took {LIMIT} s\n{errors.read()[-600:]}"
                )
                self.note({"case": begun, "outcome": why})
                return False
            line = json.loads(text) if text.startswith("{") else {}
            begun = line.get("begins", begun)
            self.note(line)
        return True

    def run(self, orders):
        """Carry out orders, several at a time."""
        self.orders = iter(orders)
        threads = [threading.Thread(target=self.serve) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def table(counts, names) -> str:
    """Return how many calls of each target were right, refused and wrong."""
    words = "right", "refused", "FAILED"
    lines = [f"{'':36}" + "".join(f"{word:>9}" for word in words)]
    for name in names:
        lines.append(f"{name:36}" + "".join(f"{counts[name, w]:9}" for w in words))
    return "\n".join(lines)


def chosen(names, every) -> list[str]:
    """Return the targets that these names mean: of a module, or one; or all."""
    parts = {name.partition(".")[0] for name in every}
    if unknown := set(names) - set(every) - parts:
        sys.exit(f"no target {', '.join(sorted(unknown))}: name a module or one of it")
    return [n for n in every if not names or {n, n.partition(".")[0]} & set(names)]


def replay(work, names, harness, whole):
    """Replay the kept cases; the whole corpus must reach every inner function."""
    start, kept = time.monotonic(), harness.corpus(names)
    work.run([{"replay": case} for case in kept])
    print(f"{len(kept)} kept cases in {time.monotonic() - start:.0f} s", flush=True)
    inner = {f"{m}.{name}" for m, some in harness.inner().items() for name in some}
    if whole and (never := sorted(inner - work.reached)):
        work.note(
            {"case": {"target": "inner"}, "outcome": f"FAILED never reached {never}"}
        )


def session(options, harness) -> int:
    """Replay the corpus, draw new cases, print the counts; return 1 for a failure."""
    names = chosen(options.names, harness.targets())
    work = Session()
    replay(work, names, harness, whole=not options.names)
    if not options.corpus:
        seed = int(time.time()) % 10**8 if options.seed is None else options.seed
        print(f"{options.seconds:g} s of fresh cases, --seed {seed}", flush=True)
        work.run(work.draws(names, seed, options.seconds, options.at_least))
    print(table(work.counts, names))
    few = [n for n in names if work.counts[n, "right"] < options.at_least]
    if few:
        print(f"FAILED fewer than {options.at_least} right calls of {', '.join(few)}")
    print(f"{sum(work.counts.values())} calls, {len(work.failures)} failures")
    return bool(work.failures or few)


def main() -> int:
    """Read the command line, in an environment of twelve devices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--case")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in CPU.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | CPU)
    from fuzzing import harness, worker  # noqa: PLC0415 (found by the PYTHONPATH above)

    if options.case:
        worker.strict()
        print(harness.run(json.loads(options.case)))
        return 0
    return session(options, harness)


if __name__ == "__main__":
    sys.exit(main())
