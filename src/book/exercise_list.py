"""Write the list of all exercises in MyST: a link, the difficulty, the question.

The difficulty is counted: lines of the solution, and wrong answers.
"""

from book import contents
from book.error_index import link
from book.exercises import wrong_answers

LEVELS = {"easy": 5, "medium": 8}  # the largest sum of each; more is hard


def difficulty(exercise, page) -> str:
    """Return the class of an exercise: a long solution, or many ways to be wrong."""
    cells = (cell for cell in page.code if {"solution", exercise.name} <= {*cell.tags})
    lines = [line for cell in cells for line in cell.source.splitlines()]
    count = sum(map(bool, map(str.strip, lines))) + len(wrong_answers(exercise.name))
    return next((name for name, most in LEVELS.items() if count <= most), "hard")


def index_text(page) -> str:
    """Return the list, to stand on a page: a section for each page with exercises."""
    lines = []
    for other in contents.pages(page.docs):
        if other.exercises:
            lines.append(f"\n## {link(other.title, other.name, page)}\n")
        for each in other.exercises:
            place = link(each.title, f"{other.name}#exercise-{each.name}", page)
            lines.append(f"- {place} ({difficulty(each, other)}): {each.asks}")
    return "\n".join(lines).strip("\n")
