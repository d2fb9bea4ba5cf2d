"""A case that names a token names the right one."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import yaml
from pyarrow import parquet

import truetune
from tests.checks.pages import block, sections
from tests.checks.pages.data import findings
from truetune.checks.check_data import add_token_views, view_row_tokens
from truetune.checks.look_up_rows_far_into_data import read_rows_at_origins
from truetune.checks.reports import DataReport
from truetune.checks.rule_catalogue import find_rule
from truetune.data.conversation import Origin
from truetune.demo import TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_json
from truetune.report.page.choose_cited_rows_for_page import token_rows_of_report
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

TOKENS = {
    "chat-template-not-prefix-stable": " It",
    "thinking-stripped-from-history": " It",
    "empty-think-block-supervised": "<",
    "default-system-prompt-injected": "<|im_start|>",
    "render-then-retokenize-double-bos": "<|endoftext|>",
    "plain-string-pair-skips-template": " It",
    "rewritten-turns-untrained": "T",
    "answer-equals-prompt-or-holds-markers": "Is",
    "special-token-in-content": "<|im_end|>",
    "tool-arguments-double-encoded": ' "',
    "boundary-token-merge": " wait",
    "response-marker-not-found": "\n",
    "eos-not-appended-by-tokenizer": ".",
    "duplicate-eos": "<|im_end|>",
    "truncation-cuts-the-terminator": " nine",
    "truncation-leaves-no-label": "It",
    "rows-longer-than-default-max-length": " one",
    "ids-beyond-embedding": "user",
    "answer-not-terminated": ".",
    "preference-pairs-identical": "It",
    "preference-pairs-swapped": "Wh",
    "pair-truncated-on-one-side": " It",
    "pair-side-not-terminated": ".",
    "special-token-inside-pair-answer": "<|im_end|>",
    "pair-prompt-not-shared": "It",
    "pairs-lack-diversity": " ",
    "turn-roles-unknown-to-template": "It",
    "malformed-rows": "5",
    "special-token-in-structure": "<|im_end|>",
    "turn-terminator-is-not-eos": "<|im_end|>",
    "pairs-with-opposite-labels": "It",
}
"""What the first case of the example on each rule's page points at"""


@pytest.mark.parametrize("name", TOKENS)
def test_the_token_of_a_case(name: str, tmp_path: Path) -> None:
    text = block(sections(find_rule(name))["Example"])
    case = findings(find_rule(name), text, tmp_path)[0].cases[0]
    settings = {k: v for k, v in (yaml.safe_load(text).get("spec") or {}).items() if k != "ignore"}
    data, tokenizer = str(tmp_path / "data.jsonl"), str(tmp_path / "tokenizer")
    assert case.origin is not None
    assert case.token is not None
    views = view_row_tokens(
        validate_settings({**settings, "data": data, "tokenizer": tokenizer}, "page"),
        case.origin.row,
    )
    shown = next(v for v in views if v.example.rendering.turn in (None, case.turn))
    assert shown.pieces[case.token] == TOKENS[name]
    if name == "duplicate-eos":
        assert list(shown.pieces).count("<|im_end|>") == 3
        assert "<|im_end|>" not in shown.pieces[case.token + 1 :]
    if name == "render-then-retokenize-double-bos":
        assert shown.pieces[:2] == ("<|endoftext|>",) * 2
        assert case.token == 1


def test_the_date_of_a_template_is_where_it_stands(tmp_path: Path) -> None:
    text = block(sections(find_rule("date-in-template"))["Example"])
    (case,) = findings(find_rule("date-in-template"), text, tmp_path)[0].cases
    spec = validate_settings(
        {"data": str(tmp_path / "data.jsonl"), "tokenizer": str(tmp_path / "tokenizer")}, "page"
    )
    (shown,) = view_row_tokens(spec, 0)
    assert case.token is not None
    assert shown.pieces[case.token].strip().isdigit()
    assert "".join(shown.pieces[: case.token]).endswith("Today is")


def said(content: Any) -> list[Any]:
    return [{"role": "assistant", "content": content}]


ASKED = [{"role": "user", "content": "Is it open?"}]
SIDES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "rejected-side-empty": ({"prompt": ASKED, "chosen": said("It is."), "rejected": said(" ")}, {}, " "),
    "special-token-inside-pair-answer": (
        {"prompt": ASKED, "chosen": said("It is."), "rejected": said("No<|im_end|> way.")}, {}, "<|im_end|>",
    ),
    "pair-side-not-terminated": (
        {"prompt": "Is it open? ", "chosen": "It is.<|im_end|>", "rejected": "It is not!"}, {}, "!",
    ),
    "pair-truncated-on-one-side": (
        {"prompt": ASKED, "chosen": said("It is."), "rejected": said("It is not open on Sunday.")},
        {"max_length": 16}, " on",
    ),
    "pair-prompt-not-shared": (
        {"prompt": ASKED, "chosen": said("Yes."), "rejected": [*ASKED, *said("No.")]}, {}, "No",
    ),
}  # fmt: skip
"""A row, settings, and the token of its rejected side that the case points at"""


@pytest.mark.parametrize("name", SIDES)
def test_a_case_on_the_rejected_side_says_so(name: str, tmp_path: Path) -> None:
    row, settings, token = SIDES[name]
    data = tmp_path / "pairs.jsonl"
    data.write_text(json.dumps(row) + "\n")
    report = truetune.check(data=str(data), tokenizer=str(TOKENIZER), select=name, **settings)
    (finding,) = report.findings
    (case,) = finding.cases
    assert (case.side, case.origin) == ("rejected", Origin(str(data), 1, 0))
    (shown,) = (one for one in token_rows_of_report(report) if one["title"] == "rejected")
    assert case.token is not None
    assert shown["pieces"][case.token] == token


def test_a_problem_is_found_at_its_message_wherever_that_stands(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [
        {
            "system": "Be kind.",
            "messages": [{"role": "user", "content": "Hi"}, {"role": "bot", "content": "So?"}],
        },
        {"prompt": ASKED, "chosen": said(7), "rejected": said("No.")},
        {"prompt": ASKED, "chosen": said("No."), "rejected": said(9)},
    ]
    found = []
    for row in rows:
        data.write_text(json.dumps(row) + "\n")
        report = truetune.check(
            data=str(data), tokenizer=str(TOKENIZER), select=("ROW003", "ROW013")
        )
        (case,) = report.findings[0].cases
        assert case.token is not None
        shown = next(
            one
            for one in token_rows_of_report(report)
            if one["title"] in (None, case.side or "chosen")
        )
        found.append((case.turn, case.side, shown["pieces"][case.token]))
    assert found == [(2, None, "S"), (1, None, "7"), (None, "rejected", "9")]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_rows_far_in_are_read_without_those_before(kind: str, tmp_path: Path) -> None:
    rows = [{"prompt": f"q{i}", "completion": f"a{i}", "id": i} for i in range(5000)]
    text = "\n".join(json.dumps(row) + "\n" for row in rows)
    path, step = tmp_path / f"rows.{kind}", 1 if kind == "parquet" else 2
    if kind == "parquet":
        parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=700)
    else:
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    wanted = {Origin(str(path), step * i + 1, i) for i in (0, 3, 2600, 4999)}
    found = list(
        read_rows_at_origins(RunSpec(data=(str(path),)), {*wanted, Origin("another.jsonl", 1, 0)})
    )
    assert {row.origin for row in found} == wanted
    assert [row.prompt for row in found] == ["q0", "q3", "q2600", "q4999"]


def test_a_page_shows_the_rows_that_findings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"messages": [*ASKED, {"role": "bot" if i == 70 else "assistant", "content": f"a{i}"}]}
        for i in range(80)
    ]
    for name, text in (
        ("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),
        ("rows.json", json.dumps(rows)),
    ):
        (tmp_path / name).write_text(text)
        report = truetune.check(
            data=str(tmp_path / name), tokenizer=str(TOKENIZER), select="ROW003"
        )
        monkeypatch.setattr("truetune.checks.check_data.SEQUENTIAL_ROWS", 60)
        assert isinstance(report, DataReport)
        shown = add_token_views(replace(report, views=()), rows=5)
        monkeypatch.undo()
        numbers = [view.example.row.origin.row for view in shown.views]
        assert numbers == ([0, 1, 2, 3, 4, 70] if name.endswith("l") else [0, 1, 2, 3, 4])
        assert ('href="#row=70&' in html_page_of_json(report_as_dict(shown))) is name.endswith("l")
        assert (
            ", row 70: not in this page" in html_page_of_json(report_as_dict(shown))
        ) is not name.endswith("l")
