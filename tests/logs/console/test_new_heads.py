"""Weights that a load report calls missing: a new head before its training is none of the faults, all else is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose

TRAINED = "\n".join(
    f"{{'loss': {2 - step / 50:.3f}, 'grad_norm': 1.1, 'learning_rate': 2e-05, 'epoch': {step / 20:.2f}}}"
    for step in range(1, 21)
)
NEW_HEAD = (
    "BertForSequenceClassification LOAD REPORT from: bert-base-uncased\n"
    "cls.predictions.bias | UNEXPECTED | \nclassifier.weight | MISSING    | \nclassifier.bias   | MISSING    | \n"
)
OLD_FORM = (
    "[WARNING|modeling_utils.py:4172] 2026-01-01 10:10:10,123 >> Some weights of {model} were not initialized from the"
    " model checkpoint at {path} and are newly initialized: [{names}]\n"
)


def finds(text: str, tmp_path: Path) -> bool:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    return any(finding.rule == "fault-named-in-the-output" for finding in diagnose(path).findings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NEW_HEAD + TRAINED, False),
        (NEW_HEAD, True),
        (OLD_FORM.format(model="Bert", path="bert", names="'score.weight'") + TRAINED, False),
        (
            OLD_FORM.format(model="Bert", path="out/checkpoint-90", names="'score.weight'")
            + TRAINED,
            True,
        ),
        (OLD_FORM.format(model="Llama", path="m", names="'lm_head.weight'") + TRAINED, True),
        (
            OLD_FORM.format(model="Llama", path="m", names="'model.layers.0.mlp.up_proj.weight'")
            + TRAINED,
            True,
        ),
        (NEW_HEAD + "decoder.layers.0.fc1.weight | UNEXPECTED | \n" + TRAINED, True),
    ],
)
def test_only_a_new_head_before_its_training_is_left_out(
    text: str, expected: bool, tmp_path: Path
) -> None:
    assert finds(text, tmp_path) == expected


WATCHDOG = (
    "[rank0]:[E413 21:36:41.454 ProcessGroupNCCL.cpp:688] [Rank 0] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=5004, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800038"
    " milliseconds before timing out.\n"
)
LIMIT = "slurmstepd: error: *** STEP 60881.0 ON a100-03 CANCELLED AT 2026-04-14T00:00:12 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [(WATCHDOG + LIMIT, "one process waited"), (LIMIT, "time limit")],
)
def test_a_time_limit_behind_a_collective_timeout_is_not_the_cause(
    text: str, title: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.log"
    path.write_text(TRAINED + "\n" + text, encoding="utf-8")
    messages = [finding.message for finding in diagnose(path).findings]
    assert any(title in message for message in messages)


def test_a_worker_that_died_of_a_bus_error_names_shared_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        "Traceback (most recent call last):\n"
        '  File "/workspace/train.py", line 118, in <module>\n'
        "    for batch in loader:\n"
        "RuntimeError: DataLoader worker (pid(s) 311) exited unexpectedly\n",
        encoding="utf-8",
    )
    findings = diagnose(path).findings
    assert [finding.rule for finding in findings] == ["run-ended-in-an-exception"]
    assert "--shm-size" in findings[0].remedy
