"""Reports hold what was found, in each form, and let nothing from the data out as anything but text."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

import truetune
from truetune.checks.catalogue import rules
from truetune.checks.report import Report
from truetune.checks.run import view
from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.report.as_json import as_dict, to_json
from truetune.report.html import fragment, page
from truetune.report.sarif import to_sarif
from truetune.report.show import render_view, spell
from truetune.report.terminal import as_text, render_report
from truetune.spec.run import RunSpec

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "report-1.json"
HOSTILE = (
    "<script>alert(1)</script>", "[bold red]x[/]", "\x1b[31mred\x1b[0m", "\u202eright to left", "👩‍👩‍👧 日本", "\x00",
    "</style><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "a\tb\r\nc", "'\"&",
)  # fmt: skip


@pytest.fixture(scope="module")
def broken() -> Report:
    return truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER), max_length=512)


@pytest.fixture
def hostile(tmp_path: Path) -> Report:
    rows = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}], text: text}
        for text in HOSTILE
    ]
    path = tmp_path / "<b>&.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return truetune.check(data=str(path), tokenizer=str(TOKENIZER))


def drawn(report: Report, width: int = 80) -> str:
    buffer = io.StringIO()
    render_report(report, Console(file=buffer, width=width, markup=False, highlight=False), verbose=True)
    return buffer.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_terminal(broken: Report, width: int) -> None:
    text = drawn(broken, width)
    assert max(map(len, text.splitlines())) <= width
    for finding in broken.findings:
        assert f"{finding.severity}[{finding.code}] {finding.rule}" in " ".join(text.split())
    assert re.search(r"--> .*support-chat-broken\.jsonl:\d+", "".join(text.split("\n")))
    assert "= help: " in text
    assert "over max_length 512" in text


def test_nothing_reaches_the_terminal_but_text(hostile: Report) -> None:
    for text in (drawn(hostile), as_text(hostile)):
        assert "\x1b" not in text
        assert "\x00" not in text
        assert "\u202e" not in text
        assert "[bold red]x[/]" in text


def test_json_keeps_to_its_schema(broken: Report, hostile: Report) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for report in (broken, hostile):
        value = json.loads(to_json(report))
        jsonschema.validate(value, schema)
        assert value == as_dict(report)
    assert as_dict(broken)["failed"]
    total = sum(cell["supervised"] + cell["context"] for cell in as_dict(broken)["ledger"].values())
    assert total == broken.ledger.total


def test_sarif(broken: Report) -> None:
    log = json.loads(to_sarif(broken))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [rule.code for rule in rules()]
    assert len(run["results"]) == len(broken.findings)
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_the_page_escapes_everything(hostile: Report) -> None:
    text = page(hostile)
    tags = Tags()
    tags.feed(text)
    assert not {"script", "img", "iframe", "link", "object"} & tags.found
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "href")}
    assert "default-src 'none'" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "49" not in text.split("<h2>Tokens</h2>")[1].split("{{")[0][-20:]
    assert not re.search(r"https?://", text)


def test_the_page_holds_findings_ledger_and_tokens(broken: Report) -> None:
    text = page(broken)
    for finding in broken.findings:
        assert finding.code in text
    assert 'class="histogram"' in text
    assert "s-stop learned" in text
    assert "messages[1].content[0:]" in text
    assert broken._repr_html_() == fragment(broken)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("\n", "↵"),
        ("\t", "→"),
        ("\\xe6\\x97", "⟨e697⟩"),
        ("\u200b", "\\u200b"),
        ("日本", "日本"),
        ("\x1b", "\\x1b"),
        ("a b", "a b"),
    ],
)
def test_spelling_of_tokens(piece: str, shown: str) -> None:
    assert spell(piece) == shown


def test_show_marks_supervised_tokens_without_colour() -> None:
    (token_view, *_) = view(RunSpec(data=(str(DATA),), tokenizer=str(TOKENIZER)), 0)
    buffer = io.StringIO()
    render_view(token_view, Console(file=buffer, width=80, markup=False), ids=False)
    text = buffer.getvalue()
    assert text.count("[<|im_end|>]") == len(token_view.example.rendering.spans)
    assert "<|im_start|>user↵" in text


def test_twenty_thousand_tokens(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    content = "word " * 25_000
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]})
    )
    report = truetune.check(data=str(path), tokenizer=str(TOKENIZER))
    text = page(report)
    assert "the first 20,000 are shown" in text
    assert len(text) < 4_000_000


SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "required": ["id", "name", "shortDescription", "help"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "name": {"type": "string"},
                                                "shortDescription": {"$ref": "#/$defs/message"},
                                                "help": {"$ref": "#/$defs/message"},
                                                "defaultConfiguration": {"type": "object"},
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "level", "message", "locations"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"$ref": "#/$defs/message"},
                                "partialFingerprints": {"type": "object"},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "properties": {"uri": {"type": "string"}},
                                                    },
                                                    "region": {
                                                        "type": "object",
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            },
                                            "message": {"$ref": "#/$defs/message"},
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
    "$defs": {
        "message": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}},
        }
    },
}
"""The part of SARIF 2.1.0 that is used, after the standard's own schema."""
