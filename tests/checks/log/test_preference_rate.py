"""Learning rates of preference runs, by the state of a trainer and what lies beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.logs.read_run_log import read_run

SETTINGS = """model_name_or_path: saves/sft
stage: dpo
do_train: true
finetuning_type: full
dataset: pairs
template: llama3
learning_rate: 5.0e-5
output_dir: saves/dpo
"""


def write_state(folder: Path, rate: float, margin: float, loss: float, records: int = 40) -> None:
    history: list[dict[str, Any]] = []
    for number in range(1, records + 1):
        done = min(1.0, 2 * number / records)
        history.append(
            {
                "step": 10 * number,
                "epoch": 3 * number / records,
                "learning_rate": rate * (1 - number / (records + 1)),
                "loss": 0.69 * (1 - done) + loss * done,
                "rewards/margins": margin * done,
                "rewards/chosen": -margin * done,
                "rewards/rejected": -2 * margin * done,
                "rewards/accuracies": 0.5 + 0.5 * done,
                "logps/chosen": -200 - 10 * margin * done,
                "logps/rejected": -220 - 20 * margin * done,
            }
        )
    state = {"global_step": 10 * records + 6, "max_steps": 10 * records + 6, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")


def found(folder: Path) -> list[str]:
    result = run_rule(read_run(folder), find_rule("preference-rate-far-too-high"))
    return [finding.message for finding in result.findings]


@pytest.mark.parametrize("rate", [2.5e-5, 5e-5, 1e-4, 3e-4])
def test_a_rate_of_sft_and_curves_that_ran_away(tmp_path: Path, rate: float) -> None:
    write_state(tmp_path, rate, 30, 1e-4)
    (message,) = found(tmp_path)
    assert "times the usual one in DPO for full fine-tuning" in message


@pytest.mark.parametrize(
    ("rate", "margin", "loss"),
    [(5e-7, 1.2, 0.5), (5e-6, 12.0, 1e-4), (5e-5, 2.0, 0.4), (5e-5, 12.0, 0.05), (5e-5, 5.0, 1e-4)],
)
def test_other_runs(tmp_path: Path, rate: float, margin: float, loss: float) -> None:
    write_state(tmp_path, rate, margin, loss)
    assert found(tmp_path) == []


@pytest.mark.parametrize(("rate", "count"), [(5e-5, 0), (1e-3, 1)])
def test_rates_of_an_adapter(tmp_path: Path, rate: float, count: int) -> None:
    write_state(tmp_path, rate, 30, 1e-4)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}', encoding="utf-8")
    assert len(found(tmp_path)) == count


def test_settings_and_answers_beside_a_state_are_judged(tmp_path: Path) -> None:
    write_state(tmp_path, 5e-5, 30, 1e-4)
    (tmp_path / "dpo.yaml").write_text(SETTINGS, encoding="utf-8")
    rows = [
        {"prompt": f"Is it {n}?", "predict": f"It is {n}.", "label": f"It is {n}."}
        for n in range(20)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "generated_predictions.jsonl").write_text(lines, encoding="utf-8")
    from truetune.settings.run_spec import RunSpec
    from truetune.troubleshooting.check_project import check_project

    report = check_project([str(tmp_path)], RunSpec())
    assert len(report.subjects) == 3
    assert {"LOG124", "CFG015"} <= {finding.code for finding in report.findings}
    steps = next(dict(one.facts)["steps"] for one in report.subjects if one.log is not None)
    assert steps == "406 of 406"


def write_falling_log(folder: Path, *, has_reference: bool) -> None:
    """A run whose two sides fall from the first record on, with rewards away from 0 there."""
    history: list[dict[str, Any]] = []
    for number in range(1, 31):
        fall = -25.0 * min(1.0, number / 20)
        logps = {"chosen": -25 + fall, "rejected": -50 + 2 * fall}
        references = {"chosen": -95 + number % 3, "rejected": -105 - number % 4}
        shift = references if has_reference else {"chosen": 0.0, "rejected": 0.0}
        history.append(
            {"step": 5 * number, "epoch": number / 30, "loss": 0.5 - 0.01 * number}
            | {f"logps/{side}": value for side, value in logps.items()}
            | {f"rewards/{side}": 0.2 * (logps[side] - shift[side]) for side in logps}
            | {"rewards/margins": 1.0 + 0.1 * number, "rewards/accuracies": 0.9}
        )
    state = {"global_step": 150, "max_steps": 150, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")


@pytest.mark.parametrize(
    ("has_reference", "severity", "words"),
    [
        (True, "info", "reference is the model that training starts from"),
        (False, "warning", "this loss has no reference"),
    ],
)
def test_a_loss_has_no_reference_where_rewards_are_multiples_of_the_log_probabilities(
    tmp_path: Path, has_reference: bool, severity: str, words: str
) -> None:
    write_falling_log(tmp_path, has_reference=has_reference)
    [finding] = run_rule(read_run(tmp_path), find_rule("dpo-chosen-falls")).findings
    assert finding.severity == severity
    assert words in finding.remedy
