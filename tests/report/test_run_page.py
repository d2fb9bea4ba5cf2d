"""The page of runs and answers in a real browser: the cursor, the flags, the steps, two runs, hostile texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import DESK, PHONE, chromium, opened, violations
from tests.report.conftest import HOSTILE
from tests.report.runs import sampled, write_run
from truetune.evaluation.training_run_report import build_run_report
from truetune.report.page import html_page_of_report
from truetune.settings.run_spec import RunSpec

Open = Callable[..., Page]
TEXTS = [
    *(text.encode("utf-8", "replace").decode() for text in HOSTILE),
    "שלום <b>",
    "一二三 🧑‍🚀",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run, two runs of which the second is of hostile texts, and two models side by side."""
    folder = tmp_path_factory.mktemp("pages")
    one, other = write_run(folder / "calm"), write_run(folder / "<i>evil", rate=3e-4, texts=TEXTS)
    made = {
        "one": html_page_of_report(build_run_report([str(one)], RunSpec())),
        "two": html_page_of_report(build_run_report([str(one), str(other)], RunSpec())),
        "models": html_page_of_report(sampled(TEXTS)),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def see(browser: Browser, pages: dict[str, Path]) -> Iterator[Open]:
    contexts = []

    def call(name: str, **options: object) -> Page:
        contexts.append(opened(browser, pages[name], **options))
        return contexts[-1].__enter__()

    yield call
    for context in contexts:
        context.__exit__(None, None, None)


def chart(page: Page, title: str) -> str:
    number = page.locator(".chart", has=page.get_by_text(title, exact=True)).get_attribute(
        "data-chart"
    )
    return f".chart[data-chart='{number}']"


def test_the_cursor_reads_all_charts_at_one_step(see: Open) -> None:
    page = see("one")
    loss = page.locator(chart(page, "Loss"))
    loss.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(loss.get_by_role("slider")).to_have_attribute("aria-valuenow", "0")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(loss.get_by_role("slider")).to_have_attribute(
        "aria-valuetext", "step 3: loss 1.741, held-out loss not logged yet"
    )
    expect(page.locator(f"{chart(page, 'Learning rate')} .c-value")).to_have_text("0.0000925")
    page.keyboard.press("End")
    expect(loss.locator(".c-value").nth(1)).to_have_text("1.5")
    box = loss.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(loss.get_by_role("slider")).to_have_attribute("aria-valuenow", "20")


def test_switches_draw_the_lines_anew(see: Open) -> None:
    page = see("one")
    line = page.locator(f"{chart(page, 'Loss by source')} path.line >> nth=1")
    plain = line.get_attribute("d")
    labels = page.locator(f"{chart(page, 'Loss by source')} .ticks-y text").all_inner_texts()
    page.get_by_label("logarithmic").check()
    drawn = page.locator(
        f"{chart(page, 'Loss by source')} .lines path.line >> nth=1"
    ).get_attribute("d")
    assert drawn != plain
    assert (
        page.locator(f"{chart(page, 'Loss by source')} .ticks-y text").all_inner_texts() != labels
    )
    page.get_by_label("smooth").check()
    assert (
        page.locator(f"{chart(page, 'Loss by source')} .lines path.line >> nth=1").get_attribute(
            "d"
        )
        != drawn
    )


def test_a_line_is_hidden_by_its_name(see: Open) -> None:
    page = see("one")
    line = page.locator(f"{chart(page, 'Loss by source')} .lines path.line >> nth=1")
    page.get_by_role("button", name="stop token").click()
    expect(line).to_have_attribute("visibility", "hidden")
    page.get_by_role("button", name="stop token").click()
    expect(line).to_have_attribute("visibility", "visible")


def test_a_flag_leads_to_its_finding(see: Open) -> None:
    page = see("one")
    flag = page.locator(f"{chart(page, 'Loss')} .c-flag")
    expect(flag).to_have_count(1)
    page.evaluate("document.getElementById('ANS001').open = false")
    flag.click()
    assert page.evaluate("location.hash") == "#ANS001"
    expect(page.locator("#ANS001")).to_have_attribute("open", "")
    page.get_by_role("button", name="step 20").first.click()
    expect(page.locator(chart(page, "Loss")).get_by_role("slider")).to_have_attribute(
        "aria-valuenow", "20"
    )


def test_values_stand_in_a_table_too(see: Open) -> None:
    page = see("one")
    figure = page.locator(chart(page, "Answers: stop, loop, echo"))
    figure.locator("summary").click()
    rows = figure.locator("tbody tr")
    expect(rows).to_have_count(3)
    assert rows.nth(1).inner_text().split()[:2] == ["20", "0.8333"]


def test_a_step_of_the_answers_is_chosen_by_keyboard(see: Open) -> None:
    page = see("one")
    section = page.locator("#looks")
    section.get_by_label("Step", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    expect(section.get_by_label("Step, as a list")).to_have_value("20")
    second = section.locator(".sample >> nth=1")
    expect(second.locator("summary .verdict-badge")).to_have_text("loops")
    assert second.locator(".s-head b").all_inner_texts() == ["step 0", "step 20", "step 40"]
    assert "at 40 is" in second.locator(".s-column >> nth=2 >> ins").first.inner_text()
    section.get_by_label("show").select_option("loop")
    expect(section.locator(".sample:visible")).to_have_count(1)
    expect(section.get_by_text("1 of 6 questions")).to_be_visible()
    section.get_by_label("step before").click()
    expect(section.locator(".sample:visible")).to_have_count(6)


def test_two_runs_stand_side_by_side(see: Open) -> None:
    page = see("two")
    assert page.locator(f"{chart(page, 'Loss')} path.line").evaluate_all(
        "all => all.filter((p) => p.closest('.lines')).map((p) =>"
        " p.getAttribute('stroke-dasharray'))"
    ) == ["", "7 4", "", "7 4"]
    assert page.locator(".differs tbody tr").all_inner_texts() == [
        "training.learning_rate\t0.0001\t0.0003"
    ]
    pins = page.locator("#run .c-pins li")
    hrefs = [pin.locator("a").get_attribute("href") for pin in pins.all()]
    assert sorted(map(str, hrefs)) == ["#ANS001", "#ANS001-2", "#ANS003", "#ANS003-2"]
    for pin, href in zip(pins.all(), hrefs, strict=True):
        message = re.split(r" ANS\d{3} ", pin.inner_text())[1]
        assert message in page.locator(f"{href} > summary").inner_text()
    expect(page.get_by_text("run: <i>evil").first).to_be_visible()
    found = page.locator("#looks .sample >> nth=0 >> .s-head b").all_inner_texts()
    assert found == ["A calm, step 40"]
    assert page.locator("#looks .sample").count() == 6 + len(TEXTS)


def test_two_models_stand_side_by_side(see: Open) -> None:
    page = see("models")
    sample = page.locator("#samples .sample >> nth=0")
    assert sample.locator(".s-head b").all_inner_texts() == ["A tuned", "B base"]
    expect(sample.locator("mark").first).to_be_visible()
    expect(sample.get_by_text("loops no more")).to_be_visible()
    expect(page.locator("#samples").get_by_text(f"{len(TEXTS)} of {len(TEXTS)}")).to_be_visible()


def test_hostile_texts_are_texts(see: Open) -> None:
    page = see("models")
    page.get_by_role("button", name="expand all").click()
    assert page.locator("main script, main img, #samples a, #samples i").count() == 0
    shown = page.locator("#samples .samples-text").all_inner_texts()
    assert any("<script>alert(1)</script>" in text for text in shown)
    assert any("\\u202eright" in text for text in shown)
    assert not any("\u202e" in text or "\x1b" in text for text in shown)


@pytest.mark.parametrize("name", ["two", "models"])
@pytest.mark.parametrize(("theme", "size"), [("light", DESK), ("dark", PHONE)])
def test_it_is_accessible_and_fits(see: Open, name: str, theme: str, size: dict[str, int]) -> None:
    page = see(name, viewport=size, color_scheme=theme)
    if name == "two":
        page.locator(chart(page, "Loss")).locator("summary").click()
        page.locator(chart(page, "Loss")).get_by_role("slider").press("End")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_phone_reads_values_by_touch(see: Open) -> None:
    page = see("one", viewport=PHONE, has_touch=True)
    plot = page.locator(f"{chart(page, 'Loss')} .c-ground")
    plot.tap()
    expect(page.locator(f"{chart(page, 'Loss')} .c-value").first).not_to_have_text("")
