"""An audit's report on every medium, from a record made by hand: no trainer is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import tests.report.test_html as html_tests
import tests.report.test_sarif as sarif_tests
from tests.report.conftest import HOSTILE
from truetune.auditing.align_batch_tokens_with_sources import align_record
from truetune.checks.findings import Case, Finding
from truetune.checks.reports import AuditReport, Subject
from truetune.demo import TOKENIZER
from truetune.encoding.token_counts import Ledger, count_tokens
from truetune.probe.run_record import Record
from truetune.render.rendering import Source
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.report.as_json import report_as_dict, to_json
from truetune.report.audit_terminal import (
    audit_verdict,
    describe_loss_function,
    ledger_rows,
    measured_laws,
)
from truetune.report.page import html_page_of_report, laws_section, notebook_html
from truetune.report.report_terminal import report_as_text
from truetune.report.sarif import report_as_sarif
from truetune.report.visible_text import escape_invisible_characters
from truetune.settings.run_spec import RunSpec, Severity

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)
DEMO = make_probes(load_tokenizer(str(TOKENIZER)), RunSpec())
PAD = DEMO.tokenizer.special["pad"].id
LAWS: dict[str, dict[str, Any]] = {
    "padding-invariance": {
        "value": 2e-7,
        "tolerance": 1e-4,
        "unit": "relative difference",
        "evidence": {},
    },
    "cache": {
        "value": float("nan"),
        "tolerance": 1e-4,
        "unit": "relative <b>",
        "evidence": {"x": [float("inf")]},
    },
    "dpo-start": {"untested": "the trainer has no reference model"},
}
CANARY = (
    {"path": "messages[0].<i>", "role": "user", "text": "x", "seen": "context"},
    {"path": "messages[1].content", "role": "assistant", "text": "y", "seen": "lost"},
)


def audited(contents: list[str]) -> AuditReport:
    """Two batches of one line of each content, asked and answered; the last stop token and a pad are wrong."""
    given = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}
        for text in contents
    ]
    written = [escape_invisible_characters(DEMO.text(row["messages"]) or "") for row in given]
    lines = [DEMO.tokenizer.backend.encode(text, add_special_tokens=False).ids for text in written]
    width = max(map(len, lines)) + 1
    ids = np.array([[*line, *[PAD] * (width - len(line))] for line in lines])
    mask = np.array([[1] * len(line) + [0] * (width - len(line)) for line in lines])
    mask[0, 1] = 0
    labels = np.where(mask == 1, ids, -100)
    labels[:, -1] = 5
    facts = {
        "rank": 0, "trainer": {"kind": "sft"}, "model": {"config": {}}, "tokenizer": {"pad": PAD, "bos": None},
        "data": {"given": {"rows": len(given)}, "prepared": {"rows": len(given)}, "numbers": list(range(len(given)))},
        "batches": [{"indices": []}] * 2,
    }  # fmt: skip
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    placed = tuple(
        align_record(
            Record(facts, [batch, batch], given), DEMO, frozenset(stop.id for stop in DEMO.stops)
        )
    )
    total = np.zeros((len(Source), 2), np.int64)
    for sample in placed:
        total += count_tokens(
            sample.source[~sample.padding], sample.supervised[~sample.padding]
        ).counts
    finding = Finding(
        "stop-token-never-supervised",
        "BAT001",
        "error",
        contents[0],
        contents[0],
        (contents[0],),
        (Case(f"batch 0: {contents[0]}"),),
    )
    return AuditReport(
        spec=RunSpec(), subjects=(Subject("training run", f"own {contents[0]}", (("model", contents[0]),)),),
        findings=(finding,), seconds=0.1, ledger=Ledger(total), samples=placed,
        padding=sum(int(s.padding.sum()) for s in placed), notes=(contents[0],), laws=LAWS, canary=CANARY,
        loss={
            "name": f"loss {contents[0]}", "file": "train <b>.py", "line": 3, "calls": [], "reason": "",
            "not_called": [{"given_as": "compute_loss_func", "name": "mine", "file": "own.py", "line": 8}],
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def report() -> AuditReport:
    return audited(["How many figs?", "Nine"])


@pytest.fixture(scope="module")
def hostile() -> AuditReport:
    return audited(list(HOSTILE))


def test_the_verdict_and_the_ledger_agree(report: AuditReport) -> None:
    assert audit_verdict(report).startswith(
        f"the loss is on {report.ledger.supervised:,} of {report.ledger.total:,} tokens"
    )
    assert "in 4 sequences of 2 batches" in audit_verdict(report)
    found = ledger_rows(report)
    assert sum(row.supervised for row in found[:-1]) == report.ledger.supervised
    assert found[-1].key == "padding"
    assert found[-1].supervised == 4
    assert sum(row.hidden for row in found[:-1]) == 2
    none = replace(report, samples=tuple(replace(s, labels=None) for s in report.samples))
    assert audit_verdict(none).startswith("the batches hold no labels")
    assert audit_verdict(replace(report, samples=())) == "no batch was seen"


def test_the_loss_stands_in_one_line_in_each_form(report: AuditReport) -> None:
    line = (
        "the loss is computed by loss How many figs? (train <b>.py:3);"
        " not called: compute_loss_func mine (own.py:8)"
    )
    assert describe_loss_function(report.loss) == line
    assert line in " ".join(report_as_text(report).split())
    assert report_as_dict(report)["audit"]["loss"]["summary"] == line
    assert line in html_tests.Parsed(html_page_of_report(report)).text
    unknown = replace(report, loss={})
    assert "the loss is not known\n" in report_as_text(unknown)
    assert report_as_dict(unknown)["audit"]["loss"] == {"summary": "the loss is not known"}
    assert "the loss is not known" in html_tests.Parsed(html_page_of_report(unknown)).text
    reason = {"name": None, "reason": "no pass was watched"}
    assert describe_loss_function(reason) == "the loss is not known: no pass was watched"
    called = {"name": "a", "calls": report.loss["not_called"]}
    expected = "the loss is computed by a, which calls compute_loss_func mine (own.py:8)"
    assert describe_loss_function(called) == expected


def test_broken_laws_stand_first(report: AuditReport) -> None:
    assert [(law.name, law.holds) for law in measured_laws(report)] == [
        ("cache", False),
        ("padding-invariance", True),
    ]


def test_a_broken_law_names_its_finding(report: AuditReport) -> None:
    broken = {"process-count": {"value": 1.0, "tolerance": 1e-3, "unit": "", "evidence": {}}}
    cases: tuple[tuple[Severity | None, str], ...] = (
        ("error", "broken (LAW016)"),
        ("info", "broken (only a note, LAW016)"),
        (None, "differs, which other findings or the settings explain"),
    )
    for severity, said in cases:
        own = (
            [Finding("gradient-depends-on-process-count", "LAW016", severity, "apart", "divide")]
            if severity
            else []
        )
        made = replace(report, laws=broken, findings=(*report.findings, *own))
        assert [law.standing for law in measured_laws(made)] == [said]
        assert said in " ".join(report_as_text(made, verbose=True).split())
        assert said in html_page_of_report(made)


def test_the_terminal_shows_all_of_it(report: AuditReport) -> None:
    text = report_as_text(replace(report, findings=()))
    for part in (
        "the loss is on",
        "not attended",
        "padding",
        "cache",
        "nan",
        "differs",
        "canary in",
        "lost",
        "1 law not tested",
        "note: How many figs?",
        "4 lines in",
    ):
        assert part in text
    assert "the trainer has no reference model" not in text
    assert "not tested: dpo-start: the trainer has no reference model" in report_as_text(
        report, verbose=True
    )


def test_figures_are_last_and_folded_where_there_are_findings(report: AuditReport) -> None:
    short, whole = report_as_text(report), report_as_text(report, verbose=True)
    assert "tokens by source" not in short
    assert "\nnote: How many figs?\n" in short, "notes are never folded"
    assert short.endswith("figures by source and length: -v\n")
    order = [
        whole.index(part)
        for part in (
            "the loss is on",
            "error[BAT001]",
            "4 lines in",
            "tokens by source",
            "canary in",
        )
    ]
    assert order == sorted(order)
    quiet = report_as_text(report, quiet=True)
    assert "tokens by source" not in quiet
    assert "BAT001" in quiet


def test_json_keeps_to_the_schema(report: AuditReport, hostile: AuditReport) -> None:
    for made in (report, hostile):
        value = json.loads(to_json(made), parse_constant=lambda name: pytest.fail(name))
        jsonschema.validate(value, SCHEMA)
        assert set(value["audit"]) == set(SCHEMA["properties"]["audit"]["properties"])
        line = SCHEMA["properties"]["audit"]["properties"]["lines"]["items"]["properties"]
        assert set(value["audit"]["lines"][0]) == set(line)
    assert report_as_dict(report)["audit"]["laws"]["cache"]["value"] is None


def test_sarif_keeps_to_the_standard(report: AuditReport, hostile: AuditReport) -> None:
    for made in (report, hostile):
        jsonschema.validate(json.loads(report_as_sarif(made)), sarif_tests.SARIF)


def test_nothing_of_the_run_becomes_markup(hostile: AuditReport) -> None:
    text = html_page_of_report(hostile)
    parsed = html_tests.Parsed(text)
    assert parsed.tags <= html_tests.TAGS
    assert not {"src", "style", "onerror"} & set(parsed.attributes)
    assert all(link.startswith("#") for link in parsed.attributes["href"])
    assert "<script>alert(1)</script>" in parsed.text


def test_the_page_shows_each_place(report: AuditReport) -> None:
    text = html_page_of_report(report)
    assert report._repr_html_() == notebook_html(report)
    assert audit_verdict(report) in html_tests.Parsed(text).text.replace("\N{NO-BREAK SPACE}", " ")
    rows = html_tests.data_of(text)["tokens"]["rows"]
    assert len(rows) == len(report.samples)
    for row, sample in zip(rows, report.samples, strict=True):
        assert row["ids"] == sample.ids.tolist()
        assert row["supervised"] == "".join(str(int(learned)) for learned in sample.supervised)
    assert any("messages[1].content" in path for _, path, *_ in rows[0]["runs"])
    case = Case(f"{report.samples[1].place}: here")
    assert 'href="#view=1"' in html_page_of_report(
        replace(report, findings=(replace(report.findings[0], cases=(case,)),))
    )


def test_a_law_that_is_no_number_is_on_the_page_and_broken() -> None:
    law = {"value": None, "tolerance": 1e-6, "unit": "nats"}
    made = laws_section.laws_section({"audit": {"laws": {"causality": law}}})
    assert made is not None
    assert "not a number" in made.html
    assert "broken" in made.html
