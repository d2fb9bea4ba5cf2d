"""Adapters whose task type lets peft leave the head of a classifier out (SRC066)."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from peft import LoraConfig, TaskType, get_peft_model
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForTokenClassification,
    Trainer)
from trl import RewardConfig, RewardTrainer, SFTTrainer
"""
CLASSIFIER = "model = AutoModelForSequenceClassification.from_pretrained('m', num_labels=1)\n"
FIRING = {
    "wrapped": CLASSIFIER + "model = get_peft_model(model, LoraConfig(r=8, task_type='CAUSAL_LM'))",
    "enumerated": CLASSIFIER
    + "config = LoraConfig(r=8, task_type=TaskType.CAUSAL_LM)\nmodel = get_peft_model(model, config)",
    "no task type": CLASSIFIER
    + "model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj']))",
    "trainer": CLASSIFIER
    + "RewardTrainer(model=model, args=a, peft_config=LoraConfig(r=8, task_type='CAUSAL_LM')).train()",
    "trainer of a name": (
        "lora = LoraConfig(r=8, lora_alpha=16, task_type='CAUSAL_LM')\n"
        "RewardTrainer('meta-llama/Llama-3.1-8B-Instruct', args=a, peft_config=lora).train()"
    ),
    "trainer by position": CLASSIFIER
    + "lora = LoraConfig(r=8)\ntrainer = RewardTrainer(model, args=a, peft_config=lora)\ntrainer.train()",
    "tokens": (
        "model = AutoModelForTokenClassification.from_pretrained('m', num_labels=9)\n"
        "model = get_peft_model(model, LoraConfig(task_type='CAUSAL_LM'))"
    ),
}
SILENT = {
    "sequence": CLASSIFIER + "model = get_peft_model(model, LoraConfig(task_type='SEQ_CLS'))",
    "trainer of a sequence": CLASSIFIER
    + "RewardTrainer(model=model, peft_config=LoraConfig(task_type=TaskType.SEQ_CLS)).train()",
    "saved": CLASSIFIER
    + "RewardTrainer(model, peft_config=LoraConfig(task_type='CAUSAL_LM', modules_to_save=['score']))",
    "saved without task": CLASSIFIER
    + "model = get_peft_model(model, LoraConfig(r=8, modules_to_save=['score']))",
    "causal": (
        "model = AutoModelForCausalLM.from_pretrained('m')\n"
        "SFTTrainer(model=model, peft_config=LoraConfig(r=8, task_type='CAUSAL_LM')).train()"
    ),
    "causal of a name": "SFTTrainer('m', peft_config=LoraConfig(r=8)).train()",
    "an open config": CLASSIFIER + "RewardTrainer(model, peft_config=LoraConfig(**settings))",
    "no adapter": CLASSIFIER + "RewardTrainer(model, args=a).train()",
    "another model": CLASSIFIER + "policy = AutoModelForCausalLM.from_pretrained('m')\n"
    "policy = get_peft_model(policy, LoraConfig(task_type='CAUSAL_LM'))",
    "given model": "def run(model):\n    RewardTrainer(model, peft_config=LoraConfig(r=8)).train()",
}


def is_found(text: str) -> bool:
    """Does the rule fire on a script?"""
    module = parse_module(HEAD + text, "train.py")
    return bool(run_rule(module, find_rule("adapter-leaves-head-out")).findings)


@pytest.mark.parametrize("text", FIRING.values(), ids=FIRING)
def test_heads_that_are_left_out(text: str) -> None:
    assert is_found(text)


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_heads_that_are_kept(text: str) -> None:
    assert not is_found(text)
