"""A process that makes calls as standard input asks, and writes a line for each.

An order is a line of JSON: {"replay": case} or {"draw": [target, seed]}. So are the
answers: which case begins, what became of it, and which inner functions were reached.
"""

import json
import sys
import traceback

import jax
from fuzzing import harness
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import seed as with_seed

SHRINKING = 40  # calls at most to make a counterexample smaller
EXAMPLES = 3  # of a target in a row


def strict():
    """Let JAX raise for other ranks, and show where an error is from."""
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_traceback_filtering", "off")


def outcome_of(case) -> str:
    """Make a call; return what became of it."""
    try:
        return harness.run(case)
    except AssertionError as error:
        return f"FAILED {error}"
    except Exception:
        return f"FAILED\n{traceback.format_exc(limit=-3)}"


class Worker:
    """Makes calls, and says what became of them."""

    def __init__(self):
        """Watch which inner functions the calls reach."""
        inner = harness.inner().items()
        self.seen = harness.watch(f"{m}.{name}" for m, names in inner for name in names)

    def say(self, **words):
        """Write one line, with what was reached."""
        print(json.dumps(words | {"reached": sorted(self.seen)}), flush=True)

    def make(self, case) -> str:
        """Make a call, after saying that it begins."""
        self.say(begins=case)
        return outcome_of(case)

    def draw(self, name, seed):
        """Make some calls of a target; of a failure, report the smallest found."""
        known, failed = {}, []

        @with_seed(seed)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(harness.cases(harness.targets()[name]))
        def calls(case):
            assume(case["seed"])  # hypothesis begins with zeros, of all targets
            text = json.dumps(case)
            if text not in known:  # beyond the limit all pass, so that shrinking ends
                late = failed and len(known) > SHRINKING
                known[text] = "right" if late else self.make(case)
                failed.extend([case] if known[text].startswith("FAILED") else [])
                if not failed:
                    self.say(case=case, outcome=known[text])
            assert not known[text].startswith("FAILED")

        try:
            calls()
        except AssertionError:
            least = min(failed, key=lambda case: len(json.dumps(case)))
            self.say(case=least, outcome=known[json.dumps(least)])

    def work(self):
        """Do what standard input asks, line by line."""
        for line in sys.stdin:
            order = json.loads(line)
            if "replay" in order:
                case = order["replay"]
                self.say(case=case, outcome=self.make(case))
            else:
                self.draw(*order["draw"])
                jax.clear_caches()
            self.say(done=True)


if __name__ == "__main__":
    strict()
    Worker().work()
