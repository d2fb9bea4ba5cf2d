"""What the terminal draws below the findings of an evaluation, a server or a rehearsal is in JSON and page."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from truetune.checks.reports import DataReport, Report
from truetune.encoding.token_counts import Ledger
from truetune.evaluation.evaluation_report import EvaluationReport
from truetune.generation.evaluation_loss_and_score_types import (
    EvaluationResults,
    MeanLoss,
    ModelMeasurements,
)
from truetune.generation.server_observations import (
    PromptComparison,
    ServerObservations,
    ServerStops,
)
from truetune.rehearsal.mutation_score import Mutant, MutationTest
from truetune.rehearsal.rehearsal_report import PreferencePair, RecitedRow, RehearsalReport
from truetune.render.rendering import Source
from truetune.report.as_json import report_as_dict, to_json
from truetune.report.page import html_page_of_json, html_page_of_report
from truetune.report.record_terminal_drawing_as_tables import record_report_details
from truetune.report.report_terminal import render_report
from truetune.serving.service_report import ServiceReport
from truetune.settings.run_spec import RunSpec

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"
SPEC = RunSpec()


def evaluation() -> EvaluationReport:
    losses = (MeanLoss("all", 120, 4, 1.25, 1.0, 1.5), MeanLoss(HOSTILE, 4, 4, 0.5))
    found = EvaluationResults(rows=4, model=ModelMeasurements(HOSTILE, losses))
    return EvaluationReport(
        spec=SPEC,
        findings=(),
        seconds=1.0,
        name=HOSTILE,
        evaluated=found,
        confidence=0.95,
        notes=(HOSTILE,),
    )


def service() -> ServiceReport:
    prompts = (
        PromptComparison("2 turns", 10, False, "ids"),
        PromptComparison("3 turns", 20, True, "ids"),
    )
    seen = ServerObservations(
        "http://localhost:8000",
        prompts=prompts,
        stopping=ServerStops((f"{HOSTILE} (2)",)),
        notes=(HOSTILE,),
    )
    return ServiceReport(spec=SPEC, findings=(), seconds=1.0, service=seen)


def rehearsal() -> RehearsalReport:
    mutant = Mutant("pad-is-stop", "what", 0.01, "", 8, 0, 8, ("recited-answer-never-stops",))
    return RehearsalReport(
        spec=SPEC, findings=(), seconds=1.0, ledger=Ledger(np.zeros((len(Source), 2), np.int64)), padding=0, samples=(),
        recited=(RecitedRow(3, "q", "blue", HOSTILE, False, True),), pairs=(PreferencePair("p", "c", "r", 0.0, 4.5),),
        losses=(7.0, 0.01), miniature="LlamaForCausalLM, 2 layers", mutation=MutationTest(0.01, 60, (mutant,), ()),
    )  # fmt: skip


@pytest.mark.parametrize(
    "report", [evaluation(), service(), rehearsal()], ids=["evaluation", "service", "rehearsal"]
)
def test_every_word_of_the_terminal_is_in_the_page(report: Report) -> None:
    console = Console(file=io.StringIO(), width=1_000, color_system=None)
    render_report(report, console, verbose=True)
    drawn = html_page_of_report(report)
    assert "<img" not in drawn
    assert "\x1b" not in drawn
    for part in record_report_details(report):
        texts = [cell["text"] for row in part["rows"] for cell in row["cells"]] if part["kind"] == "table" else [part["text"]]  # fmt: skip  # noqa: E501
        assert texts
        for text in texts:
            assert text in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "report", [evaluation(), service(), rehearsal()], ids=["evaluation", "service", "rehearsal"]
)
def test_the_page_of_the_json_is_the_page_of_the_report(report: Report) -> None:
    assert html_page_of_json(json.loads(to_json(report))) == html_page_of_report(report)


def test_a_rehearsal_has_its_answers_in_json() -> None:
    found = report_as_dict(rehearsal())["recitation"]
    assert (found["rows"][0]["recited"], found["rows"][0]["stopped"]) == (False, True)
    assert found["pairs"][0]["after"] == 4.5
    assert found["mutation"]["mutants"][0]["rules"] == ("recited-answer-never-stops",)


def test_a_check_has_nothing_of_the_kind(broken: DataReport) -> None:
    assert record_report_details(broken) == []


def test_what_is_bad_is_marked() -> None:
    assert '<td class="bad bold words">1 of 2 equal, by their ids</td>' in html_page_of_report(
        service()
    )
