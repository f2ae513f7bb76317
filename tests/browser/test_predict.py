"""A prediction opens to its reasons, by keyboard and without script, and is counted."""

import pytest

PAGE = "global-view/computation.html"
LOOKS = """box => [...box.querySelectorAll("summary, summary :is(strong, code)")]
    .map(each => [each.tagName, getComputedStyle(each).color])"""


@pytest.fixture
def page(visit):
    return visit().open(PAGE)


def test_the_first_choice_is_counted_and_stays(page):
    boxes, foot = page.locator(".predict"), page.locator(".predicted [role=status]")
    count = boxes.count()
    assert f": 0 of {count} right at the first choice" in foot.text_content()
    boxes.nth(0).locator(".wrong summary").first.click()
    boxes.nth(0).locator(".right summary").click()  # too late to count
    assert boxes.nth(0).locator(".right p").first.is_visible()
    assert boxes.nth(0).locator("[open]").count() == 1
    boxes.nth(1).locator(".right summary").press("Enter")
    assert f": 1 of {count} right" in foot.text_content()
    assert f", {count - 2} not made yet" in foot.text_content()
    page.reload()
    assert f": 1 of {count} right" in foot.text_content()
    assert boxes.locator(".chosen").count() == 2
    page.get_by_role("button", name="Choose again").click()
    assert f": 0 of {count} right" in foot.text_content()
    assert boxes.locator(".chosen").count() == boxes.locator("[open]").count() == 0


def test_it_works_without_a_script(visit):
    answer = visit(java_script_enabled=False).open(PAGE).locator(".predict details")
    assert not answer.locator("p").first.is_visible()
    answer.locator("summary").first.press("Enter")
    assert answer.locator("p").first.is_visible()


def test_a_closed_answer_does_not_show_whether_it_is_right(page):
    for box in page.locator(".predict").all():
        found = box.evaluate(LOOKS)
        assert len({*map(tuple, found)}) == len({tag for tag, _ in found})
