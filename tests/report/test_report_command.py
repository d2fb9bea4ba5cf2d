"""`truetune report`: what it takes, what it refuses, and where it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.report.runs import sampled, write_run
from truetune.checks.reports import DataReport
from truetune.cli.draw_report_page_command import report
from truetune.demo import DATA
from truetune.errors import TruetuneError
from truetune.evaluation.training_run_report import shortest_distinguishing_path_ends
from truetune.logs.downsample_curve_keeping_extremes import (
    MAX_POINTS,
    downsample_curve,
    smooth_curve,
)
from truetune.logs.run_log import Curve
from truetune.report.as_json import to_json
from truetune.report.page import html_page_of_json

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)
LOGS = Path(__file__).parents[1] / "logs" / "runs"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(
        report, [str(argument) for argument in arguments], standalone_mode=False
    )


def refused(*arguments: Any) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, TruetuneError), result.exception
    return str(result.exception)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in `outputs`, from beside it."""
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path / "outputs")


def test_a_run_becomes_report_html(folder: Path) -> None:
    result = run("outputs")
    assert result.return_value == 0
    assert result.output.startswith("report.html: ")
    assert "2 warnings" in result.output
    text = Path("report.html").read_text()
    assert (
        "Over 40 steps the loss falls from 1.78 to 1.02, means of the first and last tenth, held"
        " out from" in text
    )
    assert 'id="looks"' in text
    assert run("outputs", "--fail-on", "warning", "-q").return_value == 1


def test_a_page_of_ours_is_replaced_and_nothing_else(folder: Path) -> None:
    run("outputs")
    assert run("outputs").return_value == 0
    Path("report.html").write_text("<html>mine</html>")
    assert "is not a page that truetune wrote" in refused("outputs")
    assert Path("report.html").read_text() == "<html>mine</html>"
    assert "there is no folder" in refused("outputs", "-o", "nowhere/report.html")
    assert "it is a folder" in refused("outputs", "-o", "outputs")


def test_json_is_the_same_report(folder: Path) -> None:
    value = json.loads(run("outputs", "--json").output)
    assert not Path("report.html").exists()
    jsonschema.validate(value, SCHEMA)
    made = value["runs"][0]
    assert made["name"] == "outputs"
    assert made["settings"]["training.learning_rate"] == "0.0001"
    assert made["curves"]["loss"]["points"] == 40
    assert {pin["code"]: pin["step"] for pin in made["pins"]} == {"ANS001": 20.0, "ANS003": 20.0}
    assert [look["step"] for look in made["looks"]] == [0, 20, 40]
    run("outputs", "-o", "run.json")
    kept = json.loads(Path("run.json").read_text())
    assert kept["runs"] == value["runs"]
    assert run("run.json", "-o", "again.html").return_value == 0
    assert html_page_of_json(kept) == Path("again.html").read_text()


@pytest.mark.parametrize("name", ["healthy-dpo", "learning-rate-huge", "healthy-resumed"])
def test_logs_of_other_trainers_are_drawn(name: str, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = run(LOGS / f"{name}.json", "-o", target)
    assert result.exception is None
    assert result.return_value == int(name == "learning-rate-huge")
    assert target.read_text().count('class="figure chart"') >= 3


def test_results_are_folded_into_the_page_of_the_run(folder: Path, broken: DataReport) -> None:
    Path("check.json").write_text(to_json(broken))
    Path("sample.json").write_text(to_json(sampled()))
    assert run("outputs", "check.json", "sample.json").return_value == 1
    text = Path("report.html").read_text()
    for section in ("verdict", "findings", "samples", "run", "looks", "tokens"):
        assert f'<section id="{section}"' in text, section
    assert "both hold `sample`" in refused("outputs", "sample.json", "./sample.json")


def test_a_result_alone_gives_the_page_that_html_gives(tmp_path: Path, broken: DataReport) -> None:
    written, target = tmp_path / "check.json", tmp_path / "page.html"
    written.write_text(to_json(broken))
    assert run(written, "-o", target).return_value == 1
    assert 'id="tokens"' in target.read_text()


def test_what_is_none_is_refused_with_the_command_for_it(folder: Path, tmp_path: Path) -> None:
    assert "this is data, not a run" in refused(DATA)
    assert "truetune view" in refused(DATA)
    assert "no such file" in refused("nowhere")
    assert "at most 2" in refused("outputs", "outputs", "outputs")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema": "truetune.plan/1"}))
    assert "'truetune.report/1' was expected" in refused(other)
    other.write_text('{"schema": "truetune.report/1", "subjects"')
    assert "cut off" in refused(other)
    other.write_text('{"schema": "truetune.report/1", "subjects": []}')
    assert "`findings` is not there" in refused(other)
    for subjects, findings in (("[]", "[1]"), ("[{}]", "[]"), ("[]", '[{"code": "ANS001"}]')):
        other.write_text(
            f'{{"schema": "truetune.report/1", "subjects": {subjects}, "findings": {findings}}}'
        )
        assert "not as its schema says" in refused(other)


def test_a_damaged_run_says_what_is_damaged(folder: Path) -> None:
    with (folder / "findings.jsonl").open("a") as file:
        file.write('{"step": 30, "rule"')
    (folder / "run.json").write_text(
        '{"format": 1, "settings": 7, "base": [], "resumed": 3, "data": {"counts": []}}'
    )
    (folder / "watch.json").write_text("[")
    facts = json.loads(run("outputs", "--json").output)["runs"][0]["facts"]
    assert "findings.jsonl: 1 lines that are no findings" in facts["notes"]
    assert "not a JSON object" in facts["notes"]
    (folder / "samples" / "step-00000020.parquet").write_bytes(b"PAR1")
    assert "is no pass of a run" in refused("outputs")


def test_a_long_curve_keeps_its_extremes() -> None:
    steps = np.arange(100_000.0)
    values = np.sin(steps / 500)
    values[[777, 50_001]] = 9.0, -9.0
    values[123] = np.nan
    thin = downsample_curve(Curve(steps, values))
    assert thin.step.size <= MAX_POINTS
    assert {0.0, 777.0, 50_001.0, 99_999.0} <= set(thin.step)
    assert np.all(np.diff(thin.step) > 0)
    assert np.array_equal(thin.value, values[thin.step.astype(int)], equal_nan=True)
    smooth = smooth_curve(Curve(steps, np.full(100_000, 3.0)))
    assert smooth.step.size == 200
    assert np.allclose(smooth.value, 3.0)
    assert not smooth_curve(Curve(steps[:9], values[:9]))


def test_a_look_of_a_hundred_thousand_steps_is_small(tmp_path: Path) -> None:
    log = "".join(
        f'{{"step": {step}, "loss": {1 + math.sin(step)}, "grad_norm": 1}}\n'
        for step in range(1, 100_001)
    )
    (tmp_path / "trainer_log.jsonl").write_text(log)
    run(tmp_path, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 200_000


def test_tokens_a_second_are_told_by_tokens_and_clock(tmp_path: Path) -> None:
    records = [
        {"step": n, "loss": 2.0, "num_tokens": 500 * n, "wall_time": 1000.0 + 2 * n}
        for n in range(1, 5)
    ]
    (tmp_path / "trainer_log.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    curve = json.loads(run(tmp_path, "--json").output)["runs"][0]["curves"]["tokens_per_second"]
    assert (curve["x"], curve["y"]) == ([2, 3, 4], [250, 250, 250])


def test_names_tell_runs_apart() -> None:
    assert shortest_distinguishing_path_ends(["a/run-1", "a/run-2"]) == ("run-1", "run-2")
    assert shortest_distinguishing_path_ends(["a/outputs", "b/outputs"]) == (
        "a/outputs",
        "b/outputs",
    )
    assert shortest_distinguishing_path_ends(["x", "x"]) == ("x (1)", "x (2)")
