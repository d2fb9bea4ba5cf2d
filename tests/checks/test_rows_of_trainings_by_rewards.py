"""Rows beside a training that samples its answers, and the limit that a command sets: `truetune check` of a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import truetune
from tests.parts import folder as folder_of_part
from truetune.errors import DataError

PROMPTS = [{"messages": [{"role": "user", "content": f"What is {n} + 4?"}]} for n in range(40)]
LONG = [
    {
        "messages": [
            {"role": "user", "content": f"Count to {n}."},
            {"role": "assistant", "content": " ".join(f"and {m}" for m in range(900 + n))},
        ]
    }
    for n in range(20)
]
TRL = "trl grpo --model_name_or_path some/model --dataset_name rows.jsonl --reward_funcs accuracy\n"
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=m"
    " actor_rollout_ref.rollout.n=8 trainer.save_freq=10\n"
)
SFT = "swift sft --model some/model --dataset rows.jsonl --max_length {}\n"
SWIFT = "swift rlhf --rlhf_type grpo --model some/model --dataset rows.jsonl --num_generations 8\n"
OF_ANSWERS = {"row-ends-without-answer", "no-supervised-token"}


def _rules(folder: Path, rows: Sequence[Mapping[str, object]], command: str) -> set[str]:
    """The rules that speak of a folder with rows and a command."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    (folder / "run.sh").write_text(command, encoding="utf-8")
    report = truetune.check([str(folder)], tokenizer=str(folder_of_part("qwen2.5-instruct")))
    return {finding.rule for finding in report.findings if finding.severity != "info"}


@pytest.mark.parametrize("command", [TRL, VERL, SWIFT])
def test_prompts_need_no_answers(command: str, tmp_path: Path) -> None:
    assert not _rules(tmp_path, PROMPTS, command) & OF_ANSWERS


@pytest.mark.parametrize("command", [SFT.format(4096), VERL + SFT.format(4096), "echo done\n"])
def test_other_trainings_do(command: str, tmp_path: Path) -> None:
    assert _rules(tmp_path, PROMPTS, command) & OF_ANSWERS


@pytest.mark.parametrize(("limit", "is_cut"), [(512, True), (8192, False)])
def test_the_limit_of_a_command_cuts_the_rows_beside_it(
    limit: int, is_cut: bool, tmp_path: Path
) -> None:
    rules = _rules(tmp_path, LONG, SFT.format(limit))
    assert "rows-longer-than-default-max-length" not in rules
    assert ("truncation-cuts-the-terminator" in rules) is is_cut


def _check_settings_and_rows(folder: Path, temperature: float) -> truetune.Report:
    """The report on named settings of GRPO and a named file of rows that fit no format."""
    rows, settings = folder / "rows.jsonl", folder / "grpo.yaml"
    rows.write_text(json.dumps({"prompt": PROMPTS[0]["messages"], "solution": "4"}) + "\n")
    settings.write_text(
        "# trl grpo --config grpo.yaml\nmodel_name_or_path: some/model\ndataset_name: rows\n"
        f"num_generations: 8\ntemperature: {temperature}\nreward_funcs: [accuracy_reward]\n"
    )
    tokenizer = str(folder_of_part("qwen2.5-instruct"))
    return truetune.check([str(settings), str(rows)], tokenizer=tokenizer)


def test_rows_of_no_format_hide_no_finding_on_the_settings(tmp_path: Path) -> None:
    report = _check_settings_and_rows(tmp_path, 0.01)
    assert "setting-out-of-range" in {finding.rule for finding in report.findings}
    assert any("no format fits" in part.reason for part in report.not_judged)


def test_rows_of_no_format_are_an_error_where_nothing_was_found(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no format fits"):
        _check_settings_and_rows(tmp_path, 1.0)
