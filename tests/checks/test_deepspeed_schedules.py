"""Schedules of DeepSpeed that replace the written rate, and the rate that its lines print."""

# ruff: noqa: E501 - lines of logs and scripts stand as they are
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune
from truetune.checks.lint import lint
from truetune.logs.read_run_log import read_run

LOOP = "import deepspeed\nengine, opt, _, _ = deepspeed.initialize({})\nengine.backward(loss)\n"
ADAM = {"type": "AdamW", "params": {"lr": 2e-5}}
LAUNCHES = {
    "silent default": (ADAM, {"type": "WarmupLR", "params": {"warmup_num_steps": 50}}, True),
    "decay": (ADAM, {"type": "WarmupDecayLR", "params": {"total_num_steps": 900}}, True),
    "no params": (ADAM, {"type": "WarmupLR"}, True),
    "test of ranges": (ADAM, {"type": "LRRangeTest", "params": {}}, True),
    "another peak": (ADAM, {"type": "OneCycle", "params": {"cycle_max_lr": 3e-3}}, True),
    "the same peak": (ADAM, {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-5}}, False),
    "as text": (ADAM, {"type": "WarmupLR", "params": {"warmup_max_lr": "2e-5"}}, False),
    "it scales": (ADAM, {"type": "WarmupCosineLR", "params": {"total_num_steps": 900}}, False),
    "automatic": (ADAM, {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}, False),
    "as the default": (
        {"type": "AdamW", "params": {"lr": 1e-3}},
        {"type": "WarmupLR", "params": {}},
        False,
    ),
    "no rate": ({"type": "AdamW", "params": {}}, {"type": "WarmupLR", "params": {}}, False),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_schedule_of_a_loop(name: str, tmp_path: Path) -> None:
    optimizer, scheduler, is_found = LAUNCHES[name]
    settings = {"optimizer": optimizer, "scheduler": scheduler, "zero_optimization": {"stage": 2}}
    (tmp_path / "zero.json").write_text(json.dumps(settings), encoding="utf-8")
    (tmp_path / "go.py").write_text(LOOP.format("model=m, config=made"), encoding="utf-8")
    job = tmp_path / "job.sh"
    job.write_text("deepspeed go.py --deepspeed_config zero.json\n", encoding="utf-8")
    assert len(lint([job], select=["CMD009"]).findings) == is_found


def test_a_schedule_of_the_script_holds(tmp_path: Path) -> None:
    settings = {"optimizer": ADAM, "scheduler": {"type": "WarmupLR"}}
    (tmp_path / "zero.json").write_text(json.dumps(settings), encoding="utf-8")
    script = LOOP.format("model=m, config=made, lr_scheduler=own")
    (tmp_path / "go.py").write_text(script, encoding="utf-8")
    job = tmp_path / "job.sh"
    job.write_text("deepspeed go.py --deepspeed_config zero.json\n", encoding="utf-8")
    assert not lint([job], select=["CMD009"]).findings


FACTORY = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "full",
    "dataset": "some",
    "template": "qwen",
    "output_dir": "out",
    "learning_rate": 1e-5,
    "deepspeed": "zero.json",
}
AXOLOTL = {
    "base_model": "some/model",
    "datasets": [{"path": "some/data", "type": "chat_template"}],
    "sequence_len": 2048,
    "learning_rate": 1e-5,
    "deepspeed": "zero.json",
}


@pytest.mark.parametrize("settings", [FACTORY, AXOLOTL], ids=["llama-factory", "axolotl"])
@pytest.mark.parametrize(
    ("params", "is_found"),
    [({}, True), ({"warmup_max_lr": "auto"}, False), ({"warmup_max_lr": 1e-5}, False)],
)
def test_the_schedule_of_settings(
    settings: dict[str, Any], params: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    zero = {"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR", "params": params}}
    (tmp_path / "zero.json").write_text(json.dumps(zero), encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    found = [one.rule for one in truetune.check(str(path)).findings]
    assert ("deepspeed-schedule-sets-another-rate" in found) == is_found


@pytest.mark.parametrize(
    ("scheduler", "message", "remedy"),
    [
        ({"type": "WarmupLR"}, "is up to 0.001 instead of 1e-05", '"auto"'),
        (
            {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4}},
            "stops at the start: warmup_max_lr 0.0003",
            '"auto"',
        ),
        ({"type": "OneCycle", "params": {"cycle_max_lr": 3e-3}}, "up to 0.003", "1e-05"),
        ({"type": "LRRangeTest"}, "begins at 0.001", "1e-05"),
    ],
)
def test_the_trainer_compares_and_fills_one_key_alone(
    scheduler: dict[str, Any], message: str, remedy: str, tmp_path: Path
) -> None:
    zero = {"zero_optimization": {"stage": 2}, "scheduler": scheduler}
    (tmp_path / "zero.json").write_text(json.dumps(zero), encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(AXOLOTL), encoding="utf-8")
    (found,) = [one for one in truetune.check(str(path)).findings if one.code == "CFG100"]
    assert message in found.message
    assert remedy in found.remedy


def test_the_rate_of_a_script(tmp_path: Path) -> None:
    zero = {"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR", "params": {}}}
    (tmp_path / "zero.json").write_text(json.dumps(zero), encoding="utf-8")
    script = tmp_path / "train.py"
    text = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out', learning_rate=1e-5, {})\nTrainer(model=m, args=args, train_dataset=d).train()\n"
    script.write_text(text.format("deepspeed='zero.json'"), encoding="utf-8")
    assert len(lint([script], select=["CFG100"]).findings) == 1
    script.write_text(text.format("bf16=True"), encoding="utf-8")
    assert not lint([script], select=["CFG100"]).findings


def test_deepspeed_prints_the_rate_of_a_loop(tmp_path: Path) -> None:
    line = "[2026-01-05 10:00:{0:02d},100] [INFO] [logging.py:107:log_dist] [Rank 0] step={0}, skipped=0, lr=[{1}, {1}], mom=[[0.9, 0.95]]\nstep {0} loss {2}\n"
    log = tmp_path / "out.log"
    log.write_text("".join(line.format(n, n * 1e-5, 2.0) for n in range(1, 9)), encoding="utf-8")
    rate = read_run(log).curve("learning_rate")
    assert rate.step.tolist() == list(range(1, 9))
    assert rate.value.max() == pytest.approx(8e-5)


def test_a_rate_that_the_loop_prints_itself_holds(tmp_path: Path) -> None:
    line = "[Rank 0] step={0}, skipped=0, lr=[0.5], mom=[[0.9, 0.95]]\nstep {0} loss 2.0 lr 1e-5\n"
    log = tmp_path / "out.log"
    log.write_text("".join(line.format(n) for n in range(1, 9)), encoding="utf-8")
    assert read_run(log).curve("learning_rate").value.max() == pytest.approx(1e-5)


STEP = "[Rank 0] step={0}, skipped=0, lr=[{1}], mom=[[0.9, 0.95]]\nstep {0} loss {2}\n"
OWN = "Using DeepSpeed Optimizer param name adamw as basic optimizer\n"
CLIENT = "Using client Optimizer as basic optimizer\n"
COMMAND = "cmd = python -u -m deepspeed.launcher.launch train.py --lr 1e-5 --epochs 1\n"
PRINTED = 'args: {"model_name": "m/m", "lr": 1e-05, "epochs": 1}\n'
NAMESPACE = "Namespace(model='m/m', learning_rate=1e-05, epochs=1)\n"


@pytest.mark.parametrize(
    ("head", "rate", "found"),
    [
        (COMMAND + OWN, 1e-3, ["error"]),
        (PRINTED + OWN, 1e-3, ["error"]),
        (NAMESPACE + OWN, 5e-5, ["warning"]),
        # The rate of the command, one that is scaled with 8 processes, or by the root of 32.
        (COMMAND + OWN, 1e-5, []),
        (COMMAND + OWN, 8e-5, []),
        (PRINTED + OWN, 5.657e-5, []),
        # An optimizer that the script made, and options without a rate.
        (COMMAND + CLIENT, 1e-3, []),
        (OWN + "args: {'epochs': 1, 'warmup': 10}\n", 1e-3, []),
        # A record of a step holds a rate too, and is no option.
        (OWN + "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.1}\n", 1e-3, []),
    ],
)
def test_the_rate_in_force_beside_the_one_that_is_said(
    head: str, rate: float, found: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "out.log"
    steps = "".join(STEP.format(10 * n, rate, 2.0 - n / 50) for n in range(1, 12))
    log.write_text(head + steps, encoding="utf-8")
    report = truetune.check([str(log)], select=["LOG160"], allow_unjudged=True)
    assert [one.severity for one in report.findings] == found
