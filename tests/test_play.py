"""A page is played as the notebook that a reader downloads; answers are tried."""

import json
from pathlib import Path

import pytest
from tiny_site import HEAD, PROJECT

from book import exercises, marks, play
from book.page import Page, pages

PAGE = f"""{HEAD.replace("kernelspec:", "devices: later\nkernelspec:")}# Better

```{{code-cell}}
from pathlib import Path


class Verdict:
    def __init__(self, passed, size="small"):
        self.passed, self.size, self._repr_html_ = passed, size, lambda: "html"

    def __str__(self):
        return "Accepted." if self.passed else f"Not yet: too {{self.size}}."


print("three", [*Path().iterdir()])
```

EXERCISES

```{{code-cell}}
1 / 0
```

```{{code-cell}}
answer
```

```{{code-cell}}
import os
os._exit(1)
```

```{{code-cell}}
3
```
"""
EXERCISE = """\
:::{{admonition}} Exercise: {0}
:class: exercise
Find three.
:::

```{{code-cell}}
:tags: [exercise, {0}]

answer = {1}
{2}
```
"""
WRONG = """\
[[wrong]]
answer = "answer = 2"
reason = "too small"
"""
FAULTS = {  # name, answer and last line of a stub -> what is wrong
    ("three", 0, "Verdict(answer >= 3)"): [],
    ("stub", 3, "Verdict(answer >= 3)"): ["its stub is accepted"],
    ("wrong", 0, "Verdict(answer >= 2)"): ["a wrong answer is accepted:\nanswer = 2"],
    ("reason", 0, "Verdict(answer >= 3, 'large')"): [
        "'too small' is not in Not yet: too large."
    ],
    ("error", 0, "Verdikt(answer >= 3)"): 2 * ["NameError: name 'Verdikt'"],
}


def text_of(cell):
    """Return what a cell shows."""
    return "".join(
        each.get("text") or each.get("data", {}).get("text/plain") or each["ename"]
        for each in cell.outputs
    )


@pytest.mark.processes
def test_a_page_is_played_to_its_kernels_end_and_answers_are_tried(
    tmp_path, monkeypatch
):
    """In an empty folder; the kernel is the one of this Python."""
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr(exercises, "WRONG_ANSWERS", tmp_path)
    for name, *_ in FAULTS:
        (tmp_path / f"{name}.toml").write_text(WRONG)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    boxes = "\n".join(EXERCISE.format(*each) for each in FAULTS)
    file = tmp_path / "docs/page.md"
    page = Page(file, file.parent, source=PAGE.replace("EXERCISES", boxes))
    played = play.play_page(page, tmp_path, "python3", {"JAX_PLATFORMS": "cpu"})
    cells = [c for name, c in played.cells.items() if name.startswith("cell-")]
    cells = [cell for cell in cells if cell.cell_type == "code"]
    assert text_of(cells[0]) == "three []\n"
    last = [text_of(cell) for cell in cells[-4:]]
    assert last == ["ZeroDivisionError", "0", "DeadKernelError", ""]
    assert [c.execution_count for c in cells[:-2]] == [*range(1, len(cells) - 1)]
    assert json.loads(json.dumps(played.answers)) == played.answers
    for (name, *_), words in FAULTS.items():
        faults = exercises.faults(name, played.answers[name])
        for fault, each in zip(faults, words, strict=True):
            assert fault.startswith(f"exercise {name}: ")
            assert each in fault


def test_a_process_that_a_page_starts_ends_with_its_kernel():
    for page in pages(marks.ROOT / "docs"):
        code = "\n".join(cell.source for cell in page.code)
        tied = "--pdeathsig=KILL" in code
        assert tied or "subprocess.Popen" not in code, page.name


def test_answers_that_were_not_tried_are_a_fault():
    found = ["exercise three: its answers were not tried"]
    assert exercises.faults("three", []) == found


@pytest.mark.parametrize(
    ("error", "failures", "calls"),
    [
        ("Kernel died before replying to kernel_info", 2, 3),
        ("Kernel died before replying to kernel_info", 9, 3),
        ("Kernel died", 9, 1),
    ],
)
def test_only_a_kernel_that_never_answered_is_started_again(error, failures, calls):
    started = []

    async def run():
        started.append(1)
        if len(started) <= failures:
            raise RuntimeError(error)
        return "ran"

    if failures < calls:
        assert play.run_started(run) == "ran"
    else:
        with pytest.raises(RuntimeError, match=error):
            play.run_started(run)
    assert len(started) == calls


def test_a_kernel_is_made_once_of_the_locked_versions(tmp_path, monkeypatch):
    made = []
    monkeypatch.setenv("JUPYTER_PATH", "")

    def install(folder, packages):
        made.append(packages)
        folder.mkdir()

    monkeypatch.setattr(play, "install_packages", install)
    for _ in range(2):
        assert play.make_kernel(["rich"], tmp_path) == "shardbook-rich"
    assert made == [["rich>=15", "ipykernel"]]
    spec = tmp_path / "jupyter/kernels/shardbook-rich/kernel.json"
    start, *_ = json.loads(spec.read_text())["argv"]
    assert start == str(Path(tmp_path / "shardbook-rich/bin/python"))
    lock = "jax==0.12.0.1 ; sys_platform != 'win32' \\\n    --hash=sha256:ab \\\n"
    assert play.constraints(lock) == "jax==0.12.0.1 ; sys_platform != 'win32'\n"
