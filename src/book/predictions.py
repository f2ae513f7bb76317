"""Read predictions: a question before the cell that answers it.

    :::{predict} What is sent for `a @ b`?
    - [x] an `all-reduce`
    - [ ] an `all-gather` -- no device needs the whole of a factor: each sums its part
    - [ ] **nothing** -- the summed dimension is split, so each has a part of each sum
    :::

One of three or four answers is right. A wrong one has a reason, which may continue in
indented lines; the right one may have one. What stands in code or bold is an answer's
key words: those of the right answer all occur in what the next cell with `expect` or
`raises` gives, and no line of it has all of those of a wrong one.
"""

import re
from dataclasses import dataclass

from book import guards

ITEM = re.compile(r"^- \[(x| )\] ", re.M)
KEY = re.compile(r"(`+)(.+?)\1|\*\*(.+?)\*\*", re.S)
DASH = re.compile(r"\s+(?:--|—)\s+")
NUMBER = 3, 4  # answers to a question: at least, at most


@dataclass(frozen=True)
class Answer:
    """An answer to choose: whether it is right, its Markdown, and why."""

    right: bool
    text: str
    reason: str

    @property
    def key_words(self) -> list[str]:
        """What stands in code or bold."""
        return [" ".join((m[2] or m[3]).split()) for m in KEY.finditer(self.text)]

    def fits(self, text) -> bool:
        """Return whether all its key words occur in a text, as whole words."""
        return all(
            re.search(rf"(?<![\w.]){re.escape(words)}(?!\w)", text)
            for words in self.key_words
        )


def read_answers(content) -> list[Answer]:
    """Return the answers of a prediction.

    Raises:
        ValueError: unless they are a list of three or four, of which one is right,
            each with key words, and each wrong one with a reason.
    """
    before, *items = ITEM.split(content.strip())
    answers = []
    for mark, item in zip(items[::2], items[1::2], strict=True):
        text, _, reason = DASH.sub("\0", item.strip(), count=1).partition("\0")
        answers.append(Answer(mark == "x", *map(join_lines, (text, reason))))
    least, most = NUMBER
    if before or not least <= len(answers) <= most:
        raise ValueError(f"give {least} or {most} answers, `- [x] ...` or `- [ ] ...`")
    if sum(each.right for each in answers) != 1:
        raise ValueError("one answer must be right, `- [x] ...`")
    for each in answers:
        check_answer(each)
    return answers


def check_answer(answer):
    """Raise a ValueError for an answer without key words, or without a reason."""
    if not answer.key_words:
        raise ValueError(f"{answer.text!r} has no words in code or bold")
    if not (answer.right or answer.reason):
        raise ValueError(f"{answer.text!r} is wrong, but for no reason: `-- ...`")


def join_lines(text) -> str:
    """Return a paragraph of Markdown as one line."""
    return " ".join(text.split())


def faults(page, cells):
    """Yield the faults of a page's predictions: their lines, from 1, and the faults.

    cells: the page's cells of code, each with its outputs.
    """
    for block in page.blocks:
        if block.name == "predict":
            for words in faults_of(block, cells):
                yield block.lines[0] + 1, words


def faults_of(block, cells):
    """Yield what is wrong with a prediction."""
    try:
        answers = read_answers(block.content)
    except ValueError as error:
        yield str(error)
        return
    below = (pair for pair in cells if pair[0].line > block.lines[0])
    guarded = (o for cell, o in below if {"expect", "raises"} & cell.options.keys())
    if (outputs := next(guarded, None)) is None:
        yield "no cell below has `expect` or `raises`, and answers it"
        return
    lines = lines_of(outputs)
    for each in answers:
        places = [" ".join(lines)] if each.right else lines
        if each.right != any(map(each.fits, places)):
            state = "right, but not" if each.right else "wrong, but"
            words = ", ".join(each.key_words)
            yield f"an answer is {state} in what the next cell gives: {words}"


def lines_of(outputs) -> list[str]:
    """List the lines that a cell gives: its text, its figures' words, its error."""
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    texts.append(guards.visible_text(outputs))
    error = guards.find_error(outputs)
    found = [line for text in texts for line in text.splitlines()]
    return [join_lines(line) for line in (*found, ": ".join((error or ())[:2]))]


def to_markdown(block) -> str:
    """Return a prediction as Markdown for a notebook, with the reasons folded."""
    answers = read_answers(block.content)
    number = next(n for n, each in enumerate(answers, 1) if each.right)
    reasons = [f"{n}. {each.reason}" for n, each in enumerate(answers, 1)]
    right = f"Answer {number} is right. The next cells show it."
    reasons[number - 1] = f"{number}. {answers[number - 1].reason or 'Right.'}"
    return "\n".join(
        [
            f"**Predict.** {block.argument}\n",
            *(f"{n}. {each.text}" for n, each in enumerate(answers, 1)),
            f"\n<details><summary>Which, and why</summary>\n\n{right}\n",
            *reasons,
            "\n</details>",
        ]
    )
