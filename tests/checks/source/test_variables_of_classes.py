"""Rules that follow variables do so where these are attributes of a class: `self.model`."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

CONFIG = """
from peft import LoraConfig
from trl import SFTTrainer

class Experiment{base}:
    def __init__(self):
        self.lora = LoraConfig(r=16, target_modules="all-linear")
        self.trainer = SFTTrainer(model="model", train_dataset=rows{given})

    def run(self):
        {first}
        self.trainer.train()

{start}
"""
ENGINE = """
import torch
from transformers import AutoModelForCausalLM
from vllm import LLM

class Loop:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("model").cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        {made}

    def run(self):
        for batch in loader:
            answers = self.sampler.generate(batch["prompts"])
            policy_loss(self.model, batch, answers).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

Loop().run()
"""
PLAIN = {"base": "", "given": "", "first": "pass", "start": "Experiment().run()"}


@pytest.mark.parametrize(
    ("parts", "finds"),
    [
        ({}, True),
        ({"start": "experiment = Experiment()\nexperiment.run()"}, True),
        ({"given": ", peft_config=self.lora"}, False),
        # Who is handed the object, a base, another name for it, or a text may read the attribute.
        ({"first": "prepare(self)"}, False),
        ({"base": "(Base)"}, False),
        ({"start": "launch(Experiment())"}, False),
        ({"start": "e = Experiment()\nwrap(e)"}, False),
        ({"start": ""}, False),
        ({"first": "name = 'lora'"}, False),
        ({"first": "print(self.__dict__)"}, False),
    ],
)
def test_a_config_on_self_that_nothing_reads(
    parts: dict[str, str], finds: bool, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(CONFIG.format(**{**PLAIN, **parts}), encoding="utf-8")
    found = lint([str(path)], select=("settings-never-passed",)).findings
    assert bool(found) == finds


@pytest.mark.parametrize(
    ("made", "finds"),
    [
        ('self.sampler = LLM("model")', True),
        ('self.sampler = LLM("model", gpu_memory_utilization=0.3)', False),
        ('self.sampler = LLM("model") if alone else None', False),
        ('\n        if alone:\n            self.sampler = LLM("model")', False),
    ],
)
def test_an_engine_on_self_beside_the_training(made: str, finds: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(ENGINE.format(made=made), encoding="utf-8")
    found = lint([str(path)], select=("vllm-beside-training",)).findings
    assert bool(found) == finds
