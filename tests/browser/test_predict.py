"""A prediction opens to its reasons, by keyboard and without script, and is counted."""

import pytest

PAGE = "global-view/computation.html"


@pytest.fixture
def start(visit):
    """The page, and the boxes of its predictions."""
    opened = visit()
    page = opened.open(PAGE)
    yield page, page.locator(".predict")
    assert opened.faults == []


def test_the_first_choice_is_counted_and_stays(start):
    page, boxes = start
    foot = page.locator(".predicted [role=status]")
    count = boxes.count()
    assert foot.text_content().startswith(
        f"Predictions on this page: 0 of {count} right at the first choice"
    )
    boxes.nth(0).locator(".wrong summary").first.click()
    boxes.nth(0).locator(".right summary").click()  # too late to count
    boxes.nth(1).locator(".right summary").press("Enter")
    assert f": 1 of {count} right" in foot.text_content()
    assert f", {count - 2} not made yet" in foot.text_content()
    page.reload()
    assert f": 1 of {count} right" in foot.text_content()
    assert boxes.locator(".chosen").count() == 2
    page.get_by_role("button", name="Choose again").click()
    assert f": 0 of {count} right" in foot.text_content()
    assert boxes.locator(".chosen").count() == boxes.locator("[open]").count() == 0


def test_one_answer_is_open_at_a_time(start):
    _, boxes = start
    for kind in "right", "wrong":
        answer = boxes.nth(0).locator(f"details.{kind}").first
        answer.locator("summary").click()
        assert answer.locator("p").is_visible()
    assert boxes.nth(0).locator("[open]").count() == 1


def test_it_works_without_a_script(browser, server):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server + PAGE)
    answer = page.locator(".predict details").first
    assert not answer.locator("p").is_visible()
    answer.locator("summary").press("Enter")
    assert answer.locator("p").is_visible()
    assert page.locator(".predicted").count() == 0
    context.close()


def test_a_closed_answer_does_not_show_whether_it_is_right(start):
    _, boxes = start
    looks = """box => [...box.querySelectorAll("summary, summary :is(strong, code)")]
        .map(each => [each.tagName, getComputedStyle(each).color])"""
    for box in boxes.all():
        found = box.evaluate(looks)
        assert len({*map(tuple, found)}) == len({tag for tag, _ in found})
