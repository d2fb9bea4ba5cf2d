"""Which limits of a trial are found to be switched on by the project's own files, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import argparse
import json
import os
from datasets import load_dataset
from transformers import Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
parser.add_argument("--rows", type=int, default=0)
args = parser.parse_args()
data = load_dataset("json", data_files="a.jsonl", split="train")
"""
TRAIN = "\nt = Trainer(model='m', args=TrainingArguments('o'), train_dataset=data)\nt.train()\nt.save_model('o')\n"
SMOKE = "if os.environ.get('SMOKE'):\n    data = data.select(range(64))"
FLAG = "if args.debug:\n    data = data.shuffle(seed=1).select(range(32))"
EQUAL = "FAST = os.getenv('FAST_RUN', '0') == '1'\nif FAST:\n    data = data.select(range(min(100, len(data))))"
WHOLE = "if int(os.environ.get('DEBUG', 0)):\n    data = data.take(16)"
LISTED = "rows = json.load(open('a.json'))\nif os.environ.get('DEBUG'):\n    rows = rows[:50]\ndata = rows"
NUMBER = (
    "limit = int(os.environ.get('MAX_ROWS', '0'))\nif limit:\n    data = data.select(range(64))"
)
ON = {
    "sourced": (SMOKE, {"env.sh": "export SMOKE=1\n", "job.sh": "source env.sh\npython train.py\n"}),
    "before the command": (SMOKE, {"job.sh": "SMOKE=1 python train.py\n"}),
    "slurm": (SMOKE, {"job.sh": "#SBATCH --gres=gpu:1\nexport SMOKE=1\nsrun python train.py"}),
    "a word that means no": (SMOKE, {"job.sh": "export SMOKE=0\npython train.py\n"}),
    "option": (FLAG, {"run.sh": "accelerate launch train.py --debug --rows 5\n"}),
    "compared": (EQUAL, {"job.slurm": "export FAST_RUN=1\nsrun python train.py\n"}),
    "number": (WHOLE, {"Dockerfile": "FROM python\nENV DEBUG=1\nCMD python train.py\n"}),
    "list": (LISTED, {"job.sh": "export DEBUG=yes\npython train.py\n"}),
    "two numbers": (
        NUMBER, {"a.sh": "MAX_ROWS=64 python train.py\n", "b.sh": "MAX_ROWS=32 python train.py\n"}
    ),
    "a number of rows": (NUMBER, {"job.sh": "MAX_ROWS=64 python train.py\n"}),
}  # fmt: skip
OFF = {
    "not set": (SMOKE, {"job.sh": "python train.py\n"}),
    "set for a test": (SMOKE, {"smoke.sh": "SMOKE=1 python train.py\n"}),
    "one of two jobs": (SMOKE, {"a.sh": "SMOKE=1 python train.py\n", "b.sh": "python train.py\n"}),
    "off in the second job": (
        EQUAL, {"a.sh": "FAST_RUN=1 python train.py\n", "b.sh": "FAST_RUN=0 python train.py\n"}
    ),
    "unset": (SMOKE, {"job.sh": "export SMOKE=1\nunset SMOKE\npython train.py\n"}),
    "empty": (SMOKE, {"job.sh": "export SMOKE=\npython train.py\n"}),
    "other value": (EQUAL, {"job.sh": "export FAST_RUN=0\npython train.py\n"}),
    "comment": (SMOKE, {"job.sh": "# export SMOKE=1\npython train.py\n"}),
    "no option": (FLAG, {"job.sh": "python train.py --rows 5\n"}),
    "many rows": (SMOKE.replace("64", "5000"), {"job.sh": "SMOKE=1 python train.py\n"}),
    "an evaluation": (SMOKE.replace("data =", "held ="), {"job.sh": "SMOKE=1 python train.py\n"}),
    "other script": (SMOKE, {"job.sh": "SMOKE=1 python other.py\n"}),
}  # fmt: skip


def count_findings(code: str, files: dict[str, str], folder: Path) -> int:
    (folder / "train.py").write_text(HEAD + code + TRAIN, encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(lint([folder], select=["trial-limit-switched-on"]).findings)


@pytest.mark.parametrize(("code", "files"), ON.values(), ids=ON)
def test_limits_that_are_on(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert count_findings(code, files, tmp_path) == 1


@pytest.mark.parametrize(("code", "files"), OFF.values(), ids=OFF)
def test_limits_that_are_off(code: str, files: dict[str, str], tmp_path: Path) -> None:
    assert count_findings(code, files, tmp_path) == 0
