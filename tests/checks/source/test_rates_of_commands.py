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


OBJECT = """
import torch
from transformers import AutoModelForCausalLM
from dataclasses import dataclass
{base}
class Conf(Base):
    lr: float
conf = Conf(lr=3.0)
model = AutoModelForCausalLM.from_pretrained("some/model")
opt = torch.optim.AdamW(model.parameters(), lr=conf.lr)
"""


@pytest.mark.parametrize(
    ("base", "count"),
    [
        ("from pydantic import BaseModel as Base", 1),
        # What the constructor of the base makes of it is not what the call gives.
        ("class Base:\n    def __init__(self, lr):\n        self.lr = lr * 1e-5", 0),
    ],
)
def test_fields_of_an_object_whose_base_has_a_constructor(
    tmp_path: Path, base: str, count: int
) -> None:
    (tmp_path / "train.py").write_text(OBJECT.format(base=base))
    assert len(lint([str(tmp_path / "train.py")], select=["SRC069"]).findings) == count
