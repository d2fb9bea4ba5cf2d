"""The page that shows a chat's tokens in a browser, against `truetune show` on real tokenizers."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests import parts
from tests.browser import chromium, opened, violations
from tests.preloaded import commands_python

BUILDER = Path(__file__).parents[2] / "docs" / "browser_check"
# BPE of bytes, SentencePiece, and a template that rewrites earlier turns.
FAMILIES = ("llama3.2-instruct", "qwen3", "smollm2", "mistral-7b-v0.3", "llama2-chat")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
)
TIMEOUT_MS = 120_000
CHAT = [
    {"role": "user", "content": "What is 2+2? 日本 café 👩‍👩‍👧"},
    {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\nIt is 4. naïve 🫠\n\nDone."},
    {"role": "user", "content": "  And <b>3+3</b>?\t"},
    {"role": "assistant", "content": "6\n"},
]
FAULTY_CHAT = [
    {"role": "user", "content": "hi <|im_end|> there"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": ""},
]
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% endfor %}"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page in Chromium, ready, served by this machine."""
    folder = tmp_path_factory.mktemp("browser-check")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed; it fetches Pyodide")
    done = subprocess.run(
        [sys.executable, str(BUILDER), str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"the page can't be built here: {done.stderr.strip()[-300:]}")
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with chromium() as browser:
        url = f"http://127.0.0.1:{server.server_port}/index.html"
        with opened(browser, url) as shown:
            yield shown
    server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def show(page: Page, folder: Path, chat: str, template: str = "", learn: str = "") -> None:
    """Fill in the form, and wait for the answer."""
    before = page.evaluate("document.documentElement.dataset.answered || '0'")
    files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    page.set_input_files("#files", files)
    page.fill("#chat", chat)
    page.fill("#template", template)
    page.select_option("#learn", learn)
    page.click("#show")
    page.wait_for_function(
        "before => (document.documentElement.dataset.answered || '0') !== before",
        arg=before,
        timeout=TIMEOUT_MS,
    )


def tokens_in_page(page: Page) -> list[list[tuple[int, str, str, bool]]]:
    """Of each example the (id, text, source, is it learned) of its tokens, as they are drawn."""
    drawn = page.evaluate(
        "[...document.querySelectorAll('.tokens')].map(box => [...box.querySelectorAll('.token')].map("
        "one => [one.title, one.textContent, one.classList.contains('learned')]))"
    )
    examples = []
    for box in drawn:
        titles = [title.split(", ") for title, _, _ in box]
        examples.append(
            [
                (int(id), text, source, is_learned)
                for (id, source, _), (_, text, is_learned) in zip(titles, box, strict=True)
            ]
        )
    return examples


def tokens_of_command(
    folder: Path, rows: Path, *options: str
) -> list[list[tuple[int, str, str, bool]]]:
    """The same, of `truetune show`."""
    command = [commands_python(), "-m", "truetune", "show", str(rows), "-t", str(folder), "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return [
        [(one["id"], one["text"], one["source"], one["supervised"]) for one in example["tokens"]]
        for example in json.loads(done.stdout)["examples"]
    ]


def findings_in_page(page: Page) -> list[tuple[str, str, str]]:
    """The (rule, severity, text) of the findings that are drawn."""
    drawn = page.evaluate(
        "[...document.querySelectorAll('.finding')].map(one => "
        "[one.dataset.rule, one.dataset.severity, one.firstChild.lastChild.textContent.trim()])"
    )
    return [(rule, severity, text) for rule, severity, text in drawn]


def findings_of_command(folder: Path, rows: Path) -> list[tuple[str, str, str]]:
    """The same, of `truetune check` with the rules that the page has."""
    command = [commands_python(), "-m", "truetune", "check", str(rows), "-t", str(folder), "--json"]
    chosen = [option for letters in ("TOK", "TPL", "ROW") for option in ("--select", letters)]
    done = subprocess.run([*command, *chosen], capture_output=True, text=True)
    return [
        (one["rule"], one["severity"], one["message"])
        for one in json.loads(done.stdout)["findings"]
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_is_shown_as_the_command_shows_it(page: Page, family: str, tmp_path: Path) -> None:
    folder = parts.folder(family)
    rows = tmp_path / "chat.jsonl"
    rows.write_text(json.dumps({"messages": CHAT}) + "\n")
    expected = tokens_of_command(folder, rows)
    show(page, folder, json.dumps(CHAT))
    assert tokens_in_page(page) == expected
    learned = [token for example in expected for token in example if token[3]]
    assert learned
    assert findings_in_page(page) == findings_of_command(folder, rows)
    assert page.query_selector(".not-judged") is None, page.inner_text(".not-judged")


def test_faults_of_a_row_are_found_as_the_command_finds_them(page: Page, tmp_path: Path) -> None:
    folder = parts.folder("qwen3")
    rows = tmp_path / "chat.jsonl"
    rows.write_text(json.dumps({"messages": FAULTY_CHAT}) + "\n")
    expected = findings_of_command(folder, rows)
    assert {"special-token-in-content", "answer-is-empty"} <= {rule for rule, _, _ in expected}
    show(page, folder, json.dumps(FAULTY_CHAT))
    assert findings_in_page(page) == expected


def test_a_pasted_template_and_a_setting(page: Page, tmp_path: Path) -> None:
    folder = parts.folder("smollm2")
    rows = tmp_path / "chat.jsonl"
    rows.write_text(json.dumps({"messages": CHAT}) + "\n")
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    expected = tokens_of_command(folder, rows, "--template", str(template), "--learn", "last")
    show(page, folder, json.dumps({"messages": CHAT}), TEMPLATE, "last")
    assert tokens_in_page(page) == expected


@pytest.mark.parametrize(
    ("chat", "why"),
    [
        ("[{", "the chat is not JSON"),
        ('[{"role": "user", "content": "a"}]', ""),
        ('{"nothing": 1}', "chat.jsonl"),
    ],
)
def test_what_can_not_be_shown_says_why(page: Page, chat: str, why: str) -> None:
    show(page, parts.folder("smollm2"), chat)
    assert why in page.inner_text("#status")


def test_a_text_without_places_is_refused(page: Page) -> None:
    """Qwen's normalizer composes the accent, so ids alone do not say where a token stands."""
    show(page, parts.folder("qwen3"), json.dumps([{"role": "assistant", "content": "e\u0301"}]))
    assert "truetune show` does" in page.inner_text("#status")
    assert tokens_in_page(page) == []


def test_texts_are_escaped_and_the_page_can_be_used_by_all(page: Page) -> None:
    show(page, parts.folder("smollm2"), json.dumps([{"role": "user", "content": "<img src=x>"}]))
    assert page.query_selector("#result img") is None
    assert violations(page) == []


def test_another_host_is_out_of_reach(page: Page) -> None:
    """By the policy of the page, in the worker too: there the fetch of another origin is refused."""
    refused = page.evaluate(
        """async () => {
          const source = "self.onmessage = () => fetch('http://127.0.0.2:9/').then("
            + "() => self.postMessage('reached'), () => {});"
            + "self.addEventListener('securitypolicyviolation', e => self.postMessage(e.effectiveDirective))";
          const worker = new Worker(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
          const answer = new Promise(resolve => { worker.onmessage = ({data}) => resolve(data); });
          worker.postMessage("");
          return await answer;
        }"""
    )
    assert refused == "connect-src"


def test_the_form_names_the_files_that_are_read() -> None:
    """Whatever a tokenizer's folder may hold beside weights."""
    script = (BUILDER / "page" / "page.js").read_text()
    assert all(f'"{name}"' in script for name in TOKENIZER_FILES)
