"""Lines of Lightning that prove a training in float32, and those that exclude it."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.logs.read_run_log import read_run

HINT = (
    "You are using a CUDA device ('NVIDIA H100 80GB HBM3') that has Tensor Cores. To properly utilize them, you should"
    " set `torch.set_float32_matmul_precision('medium' | 'high')`\n"
)
SIZE = "{} Total estimated model params size (MB)\n"
BARS = "".join(
    f"Epoch 0:   1%|          | {step}/900 [00:{step}<10:00,  1.00it/s, train_loss=1.{step}]\n"
    for step in (20, 30, 40)
)


def found(folder: Path, text: str) -> int:
    (folder / "run.log").write_text(text + BARS, encoding="utf-8")
    return len(
        run_rule(read_run(folder / "run.log"), find_rule("tensor-cores-stand-idle")).findings
    )


@pytest.mark.parametrize("size", ["4,943.258", "28000.1", "2,100"])
def test_float32_by_the_lines_of_lightning(tmp_path: Path, size: str) -> None:
    assert found(tmp_path, HINT + SIZE.format(size)) == 1


@pytest.mark.parametrize(
    "text",
    [
        HINT + SIZE.format("480.2"),
        SIZE.format("4,943.258"),
        "Using bfloat16 Automatic Mixed Precision (AMP)\n" + HINT + SIZE.format("4,943.258"),
        "Using 16bit Automatic Mixed Precision (AMP)\n" + HINT + SIZE.format("4,943.258"),
        "Trainer(precision='bf16-true')\n" + HINT + SIZE.format("2,471.6"),
        HINT,
        HINT + SIZE.format(",,,,"),
    ],
)
def test_no_proof_of_float32(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == 0
