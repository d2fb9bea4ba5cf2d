"""A real Chromium for tests of pages: the machine's own, that of `TRUETUNE_CHROMIUM`, or Playwright's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1280, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; the test is skipped where there is none."""
    path = os.environ.get("TRUETUNE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium here: install one, or `playwright install chromium`")
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str | Path, **options: Any) -> Iterator[Page]:
    """A page that is ready, in a context of its own; anything that its scripts or its policy complain of fails, and so
    does each request to another host."""
    context = browser.new_context(**{"viewport": DESK, **options})
    page, said = context.new_page(), list[str]()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console",
        lambda message: said.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("request", lambda request: said.append(request.url) if _outside(request.url) else None)
    page.goto(url.resolve().as_uri() if isinstance(url, Path) else url)
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    context.close()
    assert not said, said


def _outside(url: str) -> bool:
    return not url.startswith(
        ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "http://localhost:")
    )


def violations(page: Page) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA, and its best practices."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']} ({v['impact']}): {n['html'][:160]}" for v in found for n in v["nodes"]]


def cut_words(page: Page) -> list[str]:
    """The texts that are drawn, and that a part of is outside the window or a box that clips."""
    found: list[str] = page.evaluate(_FIND_CUT_WORDS)
    return found


_FIND_CUT_WORDS = """() => {
  const cut = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const unseen = "script, style, option, noscript, title, .hidden, .skip";
  const above = (element) => {
    const found = [];
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      if (getComputedStyle(one).overflowX !== "visible") found.push(one.getBoundingClientRect());
    }
    return found;
  };
  const isCut = (box, frames) =>
    box.right > innerWidth + 1 || box.left < -1
    || frames.some((frame) => box.right > frame.right + 1 || box.left < frame.left - 1);
  while (walker.nextNode()) {
    const text = walker.currentNode, frames = above(text.parentElement);
    if (!text.data.trim() || text.parentElement.closest(unseen)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    // A line that a frame hides whole, above or below itself, is not drawn.
    const drawn = [...range.getClientRects()].filter((box) => box.width
      && !frames.some((frame) => box.top >= frame.bottom - 1 || box.bottom <= frame.top + 1));
    if (drawn.some((box) => isCut(box, frames))) cut.push(text.data.trim().slice(0, 80));
  }
  return cut;
}"""
"""A word is cut where its box leaves that of an ancestor that does not let it overflow."""
