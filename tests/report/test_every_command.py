"""Each command's page: its sentence, what to do next, and the run's charts where it looked at a run."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from tests.browser import DESK, PHONE, chromium, opened, violations
from tests.report.runs import write_run
from tests.report.test_shown import evaluation, rehearsal, service
from truetune.checks.reports import DataReport, Report
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_json, html_page_of_report
from truetune.serving.compare_adapter_forms import Ladder, LadderStage
from truetune.serving.measure_kept_adapter_effect import AdapterEffect

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
LOG = Path(__file__).parents[1] / "logs" / "runs" / "learning-rate-huge.json"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        truetune_group, [str(argument) for argument in arguments], standalone_mode=False
    )
    assert result.exception is None, result.exception
    return result.output


@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_a_run_that_was_looked_at_has_its_charts(command: str, tmp_path: Path) -> None:
    folder, html, written = (
        write_run(tmp_path / "outputs"),
        tmp_path / "page.html",
        tmp_path / "page.json",
    )
    run(command, folder, "--html", html, "-o", written)
    value, text = json.loads(written.read_text()), html.read_text()
    jsonschema.validate(value, SCHEMA)
    assert value["verdict"].startswith("Over 40 steps the loss falls")
    assert [look["step"] for look in value["runs"][0]["looks"]] == [0, 20, 40]
    for part in (
        'id="run"',
        'id="looks"',
        "Loss by source</b>",
        "Learning rate</b>",
        "<b>Next:</b> measure it",
    ):
        assert part in text, part
    assert html_page_of_json(value) == text


def test_findings_on_a_log_are_pinned_at_their_step(tmp_path: Path) -> None:
    run("diagnose", LOG, "-o", tmp_path / "log.json")
    value = json.loads((tmp_path / "log.json").read_text())
    pins = value["runs"][0]["pins"]
    assert {pin["code"] for pin in pins} == {finding["code"] for finding in value["findings"]}
    assert any(pin["step"] is not None for pin in pins)
    assert value["next"] == value["findings"][0]["remedy"]


def test_a_plan_has_a_page_and_so_has_its_json(tmp_path: Path) -> None:
    config, html, again = tmp_path / "config.json", tmp_path / "plan.html", tmp_path / "again.html"
    config.write_text(json.dumps(CONFIG))
    made = run("plan", config, "--gpu", "0.5GB", "--max-length", "512", "--html", html, "--json")
    text = html.read_text()
    assert '<p class="verdict bad">It does not fit: the run takes ' in text
    assert ">activations</td>" in text
    assert 'id="findings"' not in text
    (tmp_path / "plan.json").write_text(made)
    assert "It does not fit" in run("report", tmp_path / "plan.json", "-o", again)
    assert again.read_text() == text


def test_what_failed_without_a_finding_is_said_to_have_failed(tmp_path: Path) -> None:
    """Alone, and beside a result without findings."""
    fine, plan, html = tmp_path / "fine.json", tmp_path / "plan.json", tmp_path / "both.html"
    run("check", DATA, "-t", TOKENIZER, "-o", fine)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    plan.write_text(
        run("plan", tmp_path / "config.json", "--gpu", "0.5GB", "--max-length", "512", "--json")
    )
    done = CliRunner().invoke(
        truetune_group, ["report", str(fine), str(plan), "-o", str(html)], standalone_mode=False
    )
    text = html.read_text()
    assert done.return_value == 1
    assert '<p class="verdict bad">It does not fit: ' in text
    assert '<p class="headline error">Failed</p>' in text
    assert "no findings" not in text
    assert "rehearse the run" not in text
    assert '<p class="headline fine">No findings in ' in html_page_of_json(
        json.loads(fine.read_text())
    )


def test_a_ladder_names_the_rung_that_lost_it() -> None:
    from truetune.report.adapter_effect_ladder_terminal import ladder_page_values

    whole, lost = AdapterEffect(1.0, 1.0, 2.0, 0.0, 50), AdapterEffect(0.0, 0.0, 2.0, 3.0, 50)
    made = ladder_page_values(
        Ladder(
            "<b>adapter",
            "base",
            4,
            50,
            (LadderStage("adapter on its base", whole), LadderStage("merged", lost)),
            1,
        )
    )
    text = html_page_of_json(made)
    assert "lost at: merged" in text
    assert "merging: another base" in text
    assert "&lt;b&gt;adapter" in text
    assert made["failed"] is True
    assert (
        ladder_page_values(
            Ladder("a", "b", 4, 50, (LadderStage("adapter on its base", whole),), 1)
        )["failed"]
        is False
    )


@pytest.mark.parametrize(
    "report", [evaluation(), service(), rehearsal()], ids=["evaluation", "service", "rehearsal"]
)
def test_each_says_what_it_found(report: Report) -> None:
    said = {
        "EvaluationReport": "On 4 held-out rows the loss is 1.25 nats/token (95 %: 1 to 1.5).",
        "ServiceReport": "Served otherwise than trained: prompts: 1 of 2 equal, by their ids.",
        "RehearsalReport": "recites 0 of them, and stops at the end of 1",
    }
    assert said[type(report).__name__] in report_as_dict(report)["verdict"]


def test_the_next_step_is_the_remedy_of_the_gravest_finding(broken: DataReport) -> None:
    worst = next(finding for finding in broken.findings if finding.severity == "error")
    assert report_as_dict(broken)["next"] == worst.remedy
    assert f'<p class="next"><b>Next:</b> <a href="#{worst.code}">' in html_page_of_report(broken)


def test_they_fit_a_phone_and_are_accessible(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run("plan", tmp_path / "config.json", "--gpu", "0.5GB", "--html", tmp_path / "plan.html")
    (tmp_path / "service.html").write_text(html_page_of_report(service()))
    with chromium() as browser:
        for name, size, theme in (("plan", PHONE, "dark"), ("service", DESK, "light")):
            with opened(
                browser, tmp_path / f"{name}.html", viewport=size, color_scheme=theme
            ) as seen:
                assert violations(seen) == []
                assert seen.evaluate("document.documentElement.scrollWidth") <= size["width"]
