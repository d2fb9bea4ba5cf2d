"""What is said where something is missing, mistaken or not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import truetune
from truetune.checks.check_data import view_row_tokens
from truetune.checks.check_paths import check_paths
from truetune.checks.judge_answers import findings_on_sampled_answers
from truetune.cli import truetune_group
from truetune.demo import DATA, TOKENIZER
from truetune.errors import DataError, SpecError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.settings.read_truetune_settings import find_own_settings_and_file
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config


def test_a_report_is_short_as_a_value_and_whole_in_print() -> None:
    report = truetune.check(data=str(DATA), tokenizer=str(TOKENIZER))
    assert repr(report) == f"<DataReport of {DATA}: no findings>"
    assert str(report).startswith("with an ideal mask, the loss is on ")
    fine = len(report.examined)
    unjudged = sum(part.asked or bool(part.unlock) for part in report.not_judged)
    others = len(report.not_judged) - unjudged
    assert fine > 30
    assert (
        f"no findings, {fine} checks examined and fine, {unjudged} not judged, {others} about other things"
        " (-v lists them) · 200 rows"
    ) in " ".join(str(report).split())


def test_every_report_has_the_short_form() -> None:
    kinds = (
        truetune.AuditReport,
        truetune.EvaluationReport,
        truetune.LintReport,
        truetune.RehearsalReport,
        truetune.SampleReport,
        truetune.RewardReport,
        truetune.ServiceReport,
        truetune.DataReport,
    )
    assert all("__repr__" not in vars(kind) for kind in kinds)


def test_encoded_data_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "truetune", "shards": []}))
    with pytest.raises(
        DataError, match="not as this version of truetune encode writes it; encode again"
    ):
        check_paths([tmp_path], RunSpec(tokenizer=str(TOKENIZER)))


@pytest.mark.parametrize("nested", [True, False])
def test_two_fields_of_one_column(tmp_path: Path, nested: bool) -> None:
    fields = "{}field_instruction: output\n{}field_output: output\n".replace(
        "{}", "      " if nested else "    "
    )
    kind = "\n" if nested else " alpaca\n"
    path = tmp_path / "a.yaml"
    path.write_text(f"base_model: m\ndatasets:\n  - path: d.jsonl\n    type:{kind}{fields}")
    with pytest.raises(
        SpecError,
        match=r"a\.yaml:6: .*field_output and field_instruction both name the column output",
    ):
        read_config(path)


def test_the_tokenizer_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text(f"model: {TOKENIZER}\ndata: {DATA}\n")
    assert find_own_settings_and_file(None, tmp_path)[0]["tokenizer"] == str(TOKENIZER)
    report = truetune.check(data=str(DATA), model=str(TOKENIZER))
    assert isinstance(report, truetune.DataReport)
    assert report.rows == 200


def test_messages_with_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(
        json.dumps(
            {"messages": [{"who": "user", "says": "hi"}, {"who": "assistant", "says": "yes"}]}
        )
    )
    report = truetune.check(data=str(path), tokenizer=str(TOKENIZER))
    found = next(finding for finding in report.findings if finding.code == "ROW003")
    assert found.cases[0].text.startswith(
        "turn 0 has no role: found who, says; expected role and content"
    )
    assert "rename the keys of each message" in found.remedy


def test_a_line_beyond_the_end() -> None:
    with pytest.raises(DataError, match="of 200 the last is at 200"):
        view_row_tokens(RunSpec(data=(str(DATA),), tokenizer=str(TOKENIZER)), line=999)


def test_rules_in_a_pipe_have_a_line_each() -> None:
    output = CliRunner().invoke(truetune_group, ["rules", "ANS"]).output
    # Each group is a fault's line and those of its rules.
    lines = [line for group in output.split("\n\n") for line in group.splitlines()[1:]]
    assert lines
    assert all(line.startswith("ANS") for line in lines)


@pytest.mark.parametrize(
    ("references", "fires"), [("abcd", True), ("aabc", True), ("aaab", False), ("    ", False)]
)
def test_one_answer_to_four_prompts(references: str, fires: bool) -> None:
    samples = tuple(_sample(i, reference.strip()) for i, reference in enumerate(references))
    found = findings_on_sampled_answers(
        SampledRun((SamplingPass(0, samples, 0.0),), limit=8, finished=True)
    )
    assert ("ANS005" in {finding.code for finding in found}) is fires


def _sample(row: int, reference: str) -> Sample:
    prompt = Prompt(
        ids=(row,),
        text=f"q{row}",
        question=f"q{row}",
        reference=reference,
        file="d",
        line=1,
        row=row,
        reference_ids=(1,) if reference else (),
    )
    answer = Answer(ids=(5,), text="I see.", stop=2)
    return Sample(prompt, answer, score_answer(prompt, answer))
