"""Garbage of a model that its training has broken: the training comes first, and is what the help names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

DPO = """\
model_name_or_path: some/sft
stage: dpo
do_train: true
dataset: pairs
finetuning_type: full
learning_rate: RATE
bf16: true
"""
GARBAGE = ["workspace " * 40, "ensure that ensure the the " * 20]
SOUND = [
    "You can move the licence on the account page, under Devices.",
    "Please choose the smaller font in the export dialog, then print again.",
]


def history(fall: float) -> list[dict[str, float]]:
    return [
        {
            "step": step,
            "loss": 0.69 - step / 1000,
            "rewards/chosen": -fall * step / 1000,
            "rewards/rejected": -2 * fall * step / 1000,
            "logps/chosen": -200 - fall * step / 40,
            "logps/rejected": -230 - fall * step / 20,
        }
        for step in range(10, 400, 10)
    ]


def lay_out(folder: Path, rate: str, fall: float, answers: list[str]) -> None:
    (folder / "dpo.yaml").write_text(DPO.replace("RATE", rate), encoding="utf-8")
    lines = "\n".join(json.dumps(one) for one in history(fall))
    (folder / "log.jsonl").write_text(lines, encoding="utf-8")
    rows = [
        {
            "prompt": f"How do I do number {n}?",
            "predict": f"{answers[n % 2]} {n}",
            "label": SOUND[n % 2],
        }
        for n in range(40)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / "generated_predictions.jsonl").write_text(text, encoding="utf-8")


def test_a_broken_training_comes_before_its_answers(tmp_path: Path) -> None:
    lay_out(tmp_path, "5.0e-5", 16, GARBAGE)
    found = {one.rule: one for one in truetune.check(str(tmp_path)).findings}
    order = list(found)
    assert found["dpo-chosen-falls"].severity == "error"
    bad = [name for name in ("answers-loop", "answers-are-gibberish") if name in found]
    assert bad
    for name in bad:
        assert order.index("dpo-chosen-falls") < order.index(name)
        assert "set learning_rate to 5e-7" in (found[name].remedy or "")
        assert "tokenizer" not in (found[name].remedy or "")


@pytest.mark.parametrize(
    ("rate", "fall", "answers"),
    [("5.0e-7", 0.2, GARBAGE), ("5.0e-5", 16, SOUND), ("5.0e-5", 0.2, GARBAGE)],
)
def test_answers_without_a_proof_keep_their_help(
    rate: str, fall: float, answers: list[str], tmp_path: Path
) -> None:
    lay_out(tmp_path, rate, fall, answers)
    findings = truetune.check(str(tmp_path)).findings
    assert not any("broke the model" in (one.remedy or "") for one in findings)
    assert not any(one.severity == "error" and one.rule == "dpo-chosen-falls" for one in findings)
