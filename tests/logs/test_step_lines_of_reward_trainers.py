"""What verl, prime-rl and NeMo-RL write of their steps, on the console and in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.logs.parse_printed_records import parse_printed_record
from truetune.logs.read_run_log import read_run
from truetune.logs.run_log import RunLog


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "(TaskRunner pid=7) step:34 - actor/entropy:0.22 - actor/lr:1e-06 - critic/score/mean:-0.018",
            {"step": "34", "actor/entropy": 0.22, "actor/lr": 1e-6, "critic/score/mean": -0.018},
        ),
        # Colours, the numbers of numpy 2, and names with blanks and colons.
        (
            "\x1b[36m(TaskRunner pid=7)\x1b[0m step:2 - a/b:np.float64(0.5) - val-core/my data:v2/acc/mean@1:0.25",
            {"step": "2", "a/b": 0.5, "val-core/my data:v2/acc/mean@1": 0.25},
        ),
        ("step:0 - val-core/gsm8k/acc/mean@1:0.5", {"step": "0", "val-core/gsm8k/acc/mean@1": 0.5}),
        # Three decimals leave nothing of a rate, and what a score of 0 says.
        (
            "step:83 - actor/grad_norm:0.000 - actor/lr:0.000 - critic/score/mean:0.000",
            {"step": "83", "critic/score/mean": 0.0},
        ),
        (
            "12:00:00 SUCCESS Step 12 | Time: 3.21s | Loss: 0.0043 | Entropy: 0.4012 | Mismatch KL: 0.0012"
            " | Grad. Norm: 0.0512 | LR: 1.00e-06 | Throughput: 1000 tokens/s | MFU: 1.2% | Peak Mem.: 10.2 GiB",
            {
                "step": "12",
                "step_time": 3.21,
                "loss": 0.0043,
                "entropy": 0.4012,
                "mismatch_kl/mean": 0.0012,
                "grad_norm": 0.0512,
                "learning_rate": 1e-6,
                "tokens_per_second": 1000.0,
            },
        ),
        (
            "Step 3 | Time: 5.2s | Reward: 0.46 | Val. Reward: 0.3 | Seq. Length: 300.1 tokens/sample",
            {
                "step": "3",
                "step_time": 5.2,
                "reward": 0.46,
                "eval_reward": 0.3,
                "seq_len/mean": 300.1,
            },
        ),
        # Parts of a step are no steps.
        ("Micro Step 1/4 | Loss: 0.0012 | Entropy: 0.3 | Mismatch KL: 0.001", None),
        ("step:3 - see the notes: none", None),
        ("the score of step:3 - that is 4:2", None),
        ("next step: 3 - then:1", None),
        ("substep:3 - a/b:1 - c/d:2", None),
        ("Step 3 | Loss: high | Reward: low", None),
    ],
)
def test_a_line(line: str, expected: dict[str, Any] | None) -> None:
    assert parse_printed_record(line) == expected


def _same(log: RunLog) -> dict[str, list[float]]:
    return {name: curve.value.tolist() for name, curve in log.curves.items()}


def test_the_console_and_the_files_of_verl_say_the_same(tmp_path: Path) -> None:
    records = [
        {"actor/entropy": 0.3 - 0.01 * i, "critic/score/mean": 0.1 * i, "actor/grad_norm": 0.2}
        for i in range(8)
    ]
    console, nested, flat = (tmp_path / name for name in ("run.log", "nested.jsonl", "flat.jsonl"))
    pairs = (" - ".join(f"{name}:{value}" for name, value in one.items()) for one in records)
    console.write_text("".join(f"step:{i} - {one}\n" for i, one in enumerate(pairs)))
    nested.write_text(
        "".join(json.dumps({"step": i, "data": one}) + "\n" for i, one in enumerate(records))
    )
    flat.write_text("".join(json.dumps({"step": i, **one}) + "\n" for i, one in enumerate(records)))
    logs = [read_run(path) for path in (console, nested, flat)]
    assert _same(logs[0]) == _same(logs[1]) == _same(logs[2])
    assert {log.kind for log in logs} == {"reinforcement"}
    assert logs[0].curve("reward").step.tolist() == list(range(8))


def test_a_table_of_curves(tmp_path: Path) -> None:
    table = {
        "train/reward": {"10": 0.5, "2": 0.3, "1": 0.2},
        "train/kl_penalty": {"1": 0.0, "2": 0.01},
        "validation/accuracy": {"10": 0.4},
    }
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    log = read_run(path)
    assert log.curve("reward").step.tolist() == [1, 2, 10]
    assert log.curve("kl").value.tolist() == [0.0, 0.01]
    assert log.curve("eval_accuracy").value.tolist() == [0.4]
    # Results of a run are no curves.
    path.write_text(json.dumps({"train_loss": 0.4, "epoch": {"1": 2}}), encoding="utf-8")
    assert not read_run(path).curves


def test_the_trainer_of_prime_rl_writes_no_reward(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = ({"step": i, "loss/mean": 0.001, "mismatch_kl/mean": 0.001} for i in range(5))
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    assert read_run(path).kind == "reinforcement"
