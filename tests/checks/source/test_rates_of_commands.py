"""Learning rates of loops of one's own that a command beside the script gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCRIPT = """
import argparse, torch
from transformers import AutoModelForCausalLM
p = argparse.ArgumentParser()
p.add_argument("--peak-lr", dest="peak_lr", type=float, default={default})
args = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("some/model")
opt = torch.optim.AdamW(model.parameters(), lr=args.peak_lr)
"""


@pytest.mark.parametrize(
    ("default", "command", "line"),
    [
        ("2e-5", "python train.py --peak-lr 2", 2),
        ("2e-5", "accelerate launch train.py --peak-lr=1e-9 > log", 2),
        # The command overrules a default that nobody trains with.
        ("1.0", "python train.py --peak-lr 2e-5", None),
        ("2e-5", "python train.py --peak-lr $1", None),
        ("2e-5", "python other.py --peak-lr 2", None),
        ("2e-5", "python train.py --peak-lr 2\npython train.py --peak-lr 2e-5", None),
    ],
)
def test_the_rate_of_the_command_counts(
    tmp_path: Path, default: str, command: str, line: int | None
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(default=default))
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
    found = lint([str(tmp_path / "train.py")], select=["SRC069"]).findings
    assert [finding.cases[1].line for finding in found] == ([line] if line else [])
