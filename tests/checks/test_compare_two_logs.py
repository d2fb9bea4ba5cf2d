"""Two logs of one training beside each other, of which one made far fewer steps; with near misses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

CONFIG = """\
model_name_or_path: some/model
stage: sft
do_train: true
dataset: rows
finetuning_type: lora
learning_rate: 0.0001
warmup_steps: 100
num_train_epochs: 5
"""


NO_NUMBERS = "\n".join(
    json.dumps(
        {"current_steps": step, "total_steps": 9, "loss": float("nan"), "lr": 1e-4, "epoch": step}
    )
    for step in range(1, 10)
)


def log_of(steps: int, epochs: float = 5.0, start: float = 2.0, fall: float = 0.01) -> str:
    records = (
        {
            "current_steps": step,
            "total_steps": steps,
            "loss": start - fall * step,
            "lr": min(step / 100, 1.0) * 1e-4,
            "epoch": round(epochs * step / steps, 2),
        }
        for step in range(1, steps + 1)
    )
    return "\n".join(json.dumps(one) for one in records) + "\n"


def evidence(folder: Path, logs: dict[str, str]) -> list[str]:
    """The evidence and help of the finding on the learning rate."""
    (folder / "sft.yaml").write_text(CONFIG, encoding="utf-8")
    for name, text in logs.items():
        (folder / name).mkdir()
        (folder / name / "trainer_log.jsonl").write_text(text, encoding="utf-8")
    findings = truetune.check(str(folder)).findings
    return [
        text for one in findings if one.code == "LOG011" for text in (*one.evidence, one.remedy)
    ]


def test_the_longer_log_of_the_same_epochs_is_named(tmp_path: Path) -> None:
    texts = evidence(tmp_path, {"one": log_of(190), "eight": log_of(25)})
    (proof,) = (text for text in texts if "made 190 steps" in text)
    assert "5 epochs" in proof
    assert "7.6 times as many" in proof
    assert any("lower gradient_accumulation_steps" in text for text in texts)


@pytest.mark.parametrize(
    "other",
    [log_of(190, epochs=38.0), log_of(190, start=4.0), log_of(28), NO_NUMBERS, None],
    ids=["other epochs", "other data", "about as long", "no number", "alone"],
)
def test_other_logs_prove_nothing(other: str | None, tmp_path: Path) -> None:
    logs = {"eight": log_of(25)} | ({"one": other} if other is not None else {})
    texts = evidence(tmp_path, logs)
    assert texts
    assert not any("in the same" in text for text in texts)


def epoch_log(processes: int, batches: str, minutes: int, batch: int = 0) -> str:
    """A log of Lightning, whose bars count the batches of a process."""
    lines = [f"All distributed processes registered. Starting with {processes} processes"]
    if processes == 1:
        lines = ["LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2,3]"]
    lines += [f"per_device_train_batch_size: {batch}"] * bool(batch)
    lines += [
        f"Epoch {epoch}: |          | {batches} [{minutes}:11<00:00,  0.96it/s, v_num=0, train_loss=0.8{epoch}]"
        for epoch in range(3)
    ]
    return "\n".join([*lines, "`Trainer.fit` stopped: `max_epochs=3` reached."])


@pytest.mark.parametrize(
    ("one", "four", "is_found"),
    [
        (("3000/?", 52), ("3000/?", 54), True),
        (("3000/3000", 52), ("3000/3000", 47), True),
        (("3000/?", 52), ("750/?", 14), False),
        (("3000/?", 52), ("3000/?", 20), False),  # smaller batches: as many, each of fewer rows
        (("3000/?", 52, 16), ("3000/?", 50, 4), False),
        (("3000/4000", 52), ("3000/4000", 54), False),  # no epoch is whole
    ],
)
def test_an_epoch_of_as_many_batches_on_more_processes(
    tmp_path: Path, one: tuple[str, int], four: tuple[str, int], is_found: bool
) -> None:
    tmp_path.joinpath("one.log").write_text(epoch_log(1, *one))
    tmp_path.joinpath("four.log").write_text(epoch_log(4, *four))
    found = [one for one in truetune.check(tmp_path).findings if one.code == "LOG067"]
    assert [("every process reads all rows" in one.message) for one in found] == [True] * is_found


@pytest.mark.parametrize(("steps", "is_named"), [(60, True), (400, False)])
def test_a_warm_up_longer_than_the_run_is_named_with_its_line(
    tmp_path: Path, steps: int, is_named: bool
) -> None:
    tmp_path.joinpath("train.yaml").write_text(CONFIG)
    records = (
        {
            "current_steps": step,
            "total_steps": steps + 7,
            "loss": 1.5,
            "lr": step * 1e-6,
            "epoch": step / steps,
        }
        for step in range(10, steps + 1, 10)
    )
    ended = {"current_steps": steps + 7, "total_steps": steps + 7, "eval_loss": 1.4, "epoch": 1.0}
    lines = "\n".join(json.dumps(one) for one in [*records, ended])
    tmp_path.joinpath("trainer_log.jsonl").write_text(lines)
    [finding] = [one for one in truetune.check(tmp_path).findings if one.code == "LOG011"]
    assert f"at step {steps}, the last one logged of {steps + 7}" in finding.message
    assert ("the warm-up of 100 steps (train.yaml:7)" in finding.message) is is_named
    assert {Path(case.file or "").name for case in finding.cases} >= (
        {"train.yaml"} if is_named else set()
    )
