"""A page is played as the notebook that a reader downloads; answers are tried."""

import json
from pathlib import Path

import pytest
from tiny_site import HEAD

from book import exercises, marks, play
from book.page import Page, pages

EXERCISE = f"""{HEAD}# Better

```{{code-cell}}
from pathlib import Path


class Verdict:
    def __init__(self, passed):
        self.passed, self._repr_html_ = passed, lambda: "html"

    def __str__(self):
        return "Accepted." if self.passed else "Not yet: too small."


print("three", [*Path().iterdir()])
```

:::{{admonition}} Exercise: three
:class: exercise
Find three.
:::

```{{code-cell}}
:tags: [exercise, three]

answer = 0
Verdict(answer >= 3)
```

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
WRONG = """\
[[wrong]]
answer = "answer = 2"
reason = "too small"
"""


@pytest.fixture
def play_text(tmp_path, monkeypatch):
    """Play a page with a text; the kernel is the one of this Python."""
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr(exercises, "WRONG_ANSWERS", tmp_path / "wrong")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.12"\ndependencies = ["jax>=0.12"]\n'
    )
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/three.toml").write_text(WRONG)
    (tmp_path / "docs").mkdir()

    def play_text(text):
        file = tmp_path / "docs/page.md"
        file.write_text(text.replace("kernelspec:", "devices: later\nkernelspec:"))
        page = Page(file, tmp_path / "docs")
        return play.play_page(
            page, tmp_path / "src", "python3", {"JAX_PLATFORMS": "cpu"}
        )

    return play_text


def text_of(cell):
    """Return what a cell shows."""
    return "".join(
        each.get("text") or each.get("data", {}).get("text/plain") or each["ename"]
        for each in cell.outputs
    )


@pytest.mark.processes
def test_cells_run_in_an_empty_folder_after_an_error_and_to_the_kernels_end(play_text):
    played = play_text(EXERCISE)
    cells = [played.cells[f"cell-{n}"] for n in (2, 4, 5, 6, 7, 8)]
    first, _, *others = map(text_of, cells)
    assert first == "three []\n"
    assert others == ["ZeroDivisionError", "0", "DeadKernelError", ""]
    assert [cell.execution_count for cell in cells[:4]] == [1, 2, 3, 4]
    assert exercises.faults("three", played.answers["three"]) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("answer = 0", "answer = 3", ["its stub is accepted"]),
        ("answer >= 3", "answer >= 2", ["a wrong answer is accepted:\nanswer = 2"]),
        ("too small", "too large", ["'too small' is not in Not yet: too large."]),
        ("Verdict(answer", "Verdikt(answer", 2 * ["NameError: name 'Verdikt'"]),
    ],
)
def test_an_answer_that_is_taken_for_another_is_a_fault(play_text, old, new, words):
    answers = play_text(EXERCISE.replace(old, new)).answers
    assert json.loads(json.dumps(answers)) == answers
    faults = exercises.faults("three", answers["three"])
    assert len(faults) == len(words)
    for fault, each in zip(faults, words, strict=True):
        assert fault.startswith("exercise three: ")
        assert each in fault


def test_a_process_that_a_page_starts_ends_with_its_kernel():
    for page in pages(marks.ROOT / "docs"):
        code = "\n".join(cell.source for cell in page.code)
        tied = "--pdeathsig=KILL" in code
        assert tied or "subprocess.Popen" not in code, page.name


def test_answers_that_were_not_tried_are_a_fault():
    assert exercises.faults("three", []) == [
        "exercise three: its answers were not tried"
    ]


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
