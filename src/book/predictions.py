"""Read predictions: a question before the cell that answers it.

    :::{predict} What is sent for `a @ b`?
    - [x] an `all-reduce`
    - [ ] an `all-gather` — no device needs the whole of a factor: each sums its part
    - [ ] **nothing** — the summed dimension is split, so each has a part of each sum
    :::

One of three or four answers is right. A wrong one has a reason, which may continue in
indented lines; the right one may have one. What stands in code or bold is an answer's
key words: those of the right answer all occur in what the next cell with `expect` or
`raises` gives, and no line of it has all of those of a wrong one.
"""

import re
from typing import NamedTuple

from book import guards

ITEM = re.compile(r"^- \[(x| )\] ", re.M)
KEY = re.compile(r"(`+)(.+?)\1|\*\*(.+?)\*\*")


class Answer(NamedTuple):
    """An answer to choose: whether it is right, its Markdown, and why."""

    right: bool
    text: str
    reason: str

    @property
    def key_words(self) -> list[str]:
        """What stands in code or bold."""
        return [match[2] or match[3] for match in KEY.finditer(self.text)]

    def fits(self, text) -> bool:
        """Return whether all its key words occur in a text, as whole words."""
        patterns = (rf"(?<![\w.]){re.escape(key)}(?!\w)" for key in self.key_words)
        return all(re.search(pattern, text) for pattern in patterns)


def read_answers(content) -> list[Answer]:
    """Return the answers of a prediction."""
    _, *items = ITEM.split(content.strip())
    answers = []
    for mark, item in zip(items[::2], items[1::2], strict=True):
        text, _, reason = " ".join(item.split()).partition(" — ")
        answers.append(Answer(mark == "x", text, reason))
    return answers


def faults(page, cells):
    """Yield the faults of a page's predictions: their lines, from 1, and the faults.

    cells: the page's cells of code, each with its outputs.
    """
    answering = [
        each for each in cells if {"expect", "raises"} & each[0].options.keys()
    ]
    for block in page.blocks:
        if block.name == "predict":
            line, answers = block.line, read_answers(block.content)
            outputs = next((own for cell, own in answering if cell.line > line), [])
            for words in answer_faults(answers, lines_of(outputs)):
                yield line, words


def answer_faults(answers, lines):
    """Yield what is wrong with answers, given the lines that the next cell gives."""
    if len(answers) not in (3, 4) or sum(each.right for each in answers) != 1:
        yield "give 3 or 4 answers, one right: `- [x] ...`, `- [ ] ...`"
    for each in answers:
        places, state = ([" ".join(lines)], "not in") if each.right else (lines, "in")
        if not each.key_words:
            yield f"{each.text!r} has no words in code or bold"
        elif not (each.right or each.reason):
            yield f"{each.text!r} is wrong, but for no reason: `— ...`"
        elif each.right != any(map(each.fits, places)):
            kind = "right" if each.right else "wrong"
            words = ", ".join(each.key_words)
            yield f"an answer is {kind}, but {state} what the next cell gives: {words}"


def lines_of(outputs) -> list[str]:
    """List the lines that a cell gives: its text, its figures' words, its error."""
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    lines = "\n".join([*texts, guards.text_and_error(outputs)]).splitlines()
    return [" ".join(line.split()) for line in lines]


def to_markdown(block) -> str:
    """Return a prediction as Markdown for a notebook, with the reasons folded."""
    answers = [*enumerate(read_answers(block.content), 1)]
    texts = "\n".join(f"{n}. {each.text}" for n, each in answers)
    reasons = "\n".join(f"{n}. {each.reason or 'Right.'}" for n, each in answers)
    right = next((n for n, each in answers if each.right), 0)
    return (
        f"**Predict.** {block.argument}\n\n{texts}\n\n"
        "<details><summary>Which, and why</summary>\n\n"
        f"Answer {right} is right. The next cells show it.\n\n{reasons}\n\n</details>"
    )
