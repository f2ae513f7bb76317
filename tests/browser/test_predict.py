"""A prediction opens to its reasons, by keyboard and without script, and is counted."""

PAGE = "global-view/computation.html"
LOOKS = """all => new Set(all.map(
    each => each.tagName + getComputedStyle(each).color)).size"""


def test_the_first_choice_is_counted_and_stays(visit):
    page = visit().open(PAGE)
    boxes, foot = page.locator(".predict"), page.locator(".predicted [role=status]")
    texts = boxes.locator("summary, summary :is(strong, code)")
    assert texts.evaluate_all(LOOKS) == 3  # right and wrong answers look alike
    start = f"Predictions on this page: 0 of {boxes.count()} right at the first choice"
    assert foot.text_content() == f"{start}, {boxes.count()} not made yet."
    boxes.nth(0).locator(".wrong summary").first.click()
    boxes.nth(0).locator(".right summary").click()  # too late to count
    assert boxes.nth(0).locator("[open]").count() == 1
    boxes.nth(1).locator(".right summary").press("Enter")
    page.reload()
    assert f": 1 of {boxes.count()} right" in foot.text_content()
    assert f", {boxes.count() - 2} not made yet" in foot.text_content()
    assert boxes.locator(".chosen").count() == 2
    page.get_by_role("button", name="Choose again").click()
    assert foot.text_content().startswith(start)


def test_it_works_without_a_script(visit):
    answer = visit(java_script_enabled=False).open(PAGE).locator(".predict details")
    assert not answer.locator("p").first.is_visible()
    answer.locator("summary").first.press("Enter")
    assert answer.locator("p").first.is_visible()
