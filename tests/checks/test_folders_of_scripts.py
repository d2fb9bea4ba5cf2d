"""A folder with a training script: the rows it reads, the settings of its options, what else uses its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.cached_for_one_call import clear_one_call_caches
from truetune.checks.findings import Finding

SCRIPT = """import argparse
from datasets import load_dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/pairs.jsonl")
parser.add_argument("--lr", type=float, default=1e-7)
parser.add_argument("--name", required=True)
args = parser.parse_args()
rows = load_dataset("json", data_files=args.data, split="train")
config = DPOConfig("out/run-3", learning_rate=args.lr, max_length=1024)
trainer = DPOTrainer("some/model", args=config, train_dataset=rows, peft_config=LoraConfig(r=16, lora_alpha=32))
trainer.train()
"""
FIELDS = """from dataclasses import dataclass
from peft import LoraConfig
from transformers import HfArgumentParser
from trl import DPOConfig, DPOTrainer

@dataclass
class Options:
    lr: float = 1e-7

(options,) = HfArgumentParser(Options).parse_args_into_dataclasses()
config = DPOConfig("out", learning_rate=options.lr, max_length=1024)
trainer = DPOTrainer("some/model", args=config, train_dataset=rows, peft_config=LoraConfig(r=16, lora_alpha=32))
trainer.train()
"""


def _pairs(folder: Path, rejected: str) -> None:
    """Forty pairs; `{}` in the rejected answer is the chosen one."""
    (folder / "data").mkdir()
    rows = []
    for number in range(40):
        chosen = f"The parcel {number} leaves on day {number + 1}. It arrives two days later."
        other = rejected.format(chosen) if "{}" in rejected else f"{rejected} {number}"
        rows.append({"prompt": f"When does {number} come?", "chosen": chosen, "rejected": other})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data" / "pairs.jsonl").write_text(text, encoding="utf-8")


def _found(folder: Path, rule: str) -> list[Finding]:
    return [finding for finding in truetune.check(folder).findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("rejected", "count"),
    [("{}", 40), ("{} ", 40), (" \n{}", 40), ("I can't say anything of parcel", 0)],
)
def test_rows_that_the_script_reads_are_judged_by_their_texts(
    rejected: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    _pairs(tmp_path, rejected)
    found = _found(tmp_path, "preference-pairs-identical")
    assert [finding.count for finding in found] == ([count] if count else [])


def test_pairs_of_code_are_told_apart_by_their_spaces(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    rows = [
        {"prompt": f"Write {n}", "chosen": f"if x:\n    y = {n}\n", "rejected": f"if x:\ny = {n}\n"}
        for n in range(40)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "data" / "pairs.jsonl").write_text(text)
    assert _found(tmp_path, "preference-pairs-identical") == []


@pytest.mark.parametrize("script", [SCRIPT, FIELDS])
def test_the_default_of_an_option_counts_unless_a_command_gives_another(
    script: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(script)
    (finding,) = _found(tmp_path, "learning-rate-far-from-published")
    assert "1e-07" in finding.message
    (tmp_path / "run.sh").write_text("python train.py --lr 1e-5 --name a\n")
    (tmp_path / "train.py").write_text(script + "\n")
    (tmp_path / "more.sh").write_text("python other.py --lr 3\n")
    clear_one_call_caches()
    assert _found(tmp_path, "learning-rate-far-from-published") == []


ASK = """from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("{}")
print(model.generate(ids))
"""


@pytest.mark.parametrize(
    ("folder", "more", "count"),
    [
        ("out/run-1", "", 1),
        ("out/run-3", "", 0),
        ("out/run-3/checkpoint-40", "", 0),
        ("out/other", "", 0),
        ("out/run-1", "python train_first.py --out out/run-1\n", 0),
    ],
)
def test_a_script_that_asks_an_earlier_run(
    folder: str, more: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "ask.py").write_text(ASK.format(folder))
    if more:
        (tmp_path / "first.sh").write_text(more)
    assert len(_found(tmp_path, "trained-adapter-not-used")) == count


SFT = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="train.jsonl", split="train")
SFTTrainer("some/model", args=SFTConfig("run", max_length=512), train_dataset=rows).train()
"""


@pytest.mark.parametrize("script", [SFT, "import ours\nours.train(ours.read('train.jsonl'))\n"])
def test_rows_beside_the_state_of_a_run_are_judged(script: str, tmp_path: Path) -> None:
    """The state may lie in the project itself, beside its scripts and rows."""
    rows = [{"prompt": f"What is {n}?", "completion": "<<ANSWER>>"} for n in range(40)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "sft.py").write_text(script, encoding="utf-8")
    history = [{"step": n, "loss": 2 - n / 50, "learning_rate": 1e-4} for n in range(1, 30)]
    state = {"log_history": history, "global_step": 29, "max_steps": 29}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    report = truetune.check(str(tmp_path))
    assert any(subject.kind == "data" for subject in report.subjects)


def test_a_file_that_is_added_between_two_calls_counts(tmp_path: Path) -> None:
    """As in a notebook, whose process lives on."""
    (tmp_path / "train.py").write_text(SCRIPT)
    rules = {finding.rule for finding in truetune.check([tmp_path]).findings}
    assert "learning-rate-far-from-published" in rules
    (tmp_path / "run.sh").write_text("python train.py --lr 1e-5 --name a\n")
    rules = {finding.rule for finding in truetune.check([tmp_path]).findings}
    assert "learning-rate-far-from-published" not in rules
