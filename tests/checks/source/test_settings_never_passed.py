"""Which configs, collators and callbacks that nothing is given are found, and which are left alone."""

from __future__ import annotations

import json

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from transformers import *
from transformers import AutoModelForCausalLM, EarlyStoppingCallback, GenerationConfig, Trainer, TrainingArguments
from transformers import DataCollatorForSeq2Seq, DataCollatorWithPadding
from trl import DataCollatorForCompletionOnlyLM, DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
from vllm import LLM, SamplingParams
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
"""
LEFT = {
    "adapter of TRL": "lora = LoraConfig(r=8)\nSFTTrainer(model=model, args=SFTConfig('o'), train_dataset=d).train()",
    "adapter of a trainer": "lora: LoraConfig = LoraConfig(r=8)\nTrainer(model, TrainingArguments('o')).train()",
    "adapter of a loop": "lora = IA3Config()\nprint(lora)\nfor batch in loader:\n    model(**batch).loss.backward()",
    "adapter in a function": (
        "def main():\n    peft_config = LoraConfig(r=8) if True else None\n"
        "    trainer = DPOTrainer(model=model, args=DPOConfig('o'))\n    trainer.train()\nmain()"
    ),
    "adapter of a function": (
        "def lora_settings():\n    return LoraConfig(r=8)\nconfig = lora_settings()\nSFTTrainer(model).train()"
    ),
    "adapter for a dead argument": (
        "def build(model, peft_config):\n    return SFTTrainer(model=model, args=SFTConfig('o'))\n"
        "build(model, LoraConfig(r=8)).train()"
    ),
    "arguments": "args = TrainingArguments('o', learning_rate=1e-5)\nTrainer(model=model, train_dataset=d).train()",
    "arguments of TRL": "config = SFTConfig('o', max_length=4096)\nSFTTrainer(model='m', train_dataset=d).train()",
    "collator": "collate = DataCollatorForSeq2Seq(tok)\nTrainer(model=model, args=TrainingArguments('o')).train()",
    "completions": "c = DataCollatorForCompletionOnlyLM('### A:', tokenizer=tok)\nSFTTrainer(model=model).train()",
    "callback": "stop = EarlyStoppingCallback(3)\nTrainer(model=model, args=TrainingArguments('o')).train()",
    "own callback": (
        "class Watch(TrainerCallback):\n    def on_log(self, *a, **k):\n        print(a)\n"
        "watch = Watch()\nTrainer(model=model, args=TrainingArguments('o')).train()"
    ),
    "generation": "greedy = GenerationConfig(do_sample=False)\nmodel.generate(**tok('a'), max_new_tokens=9)",
    "vLLM": "params = SamplingParams(max_tokens=900)\nLLM('m').generate(['a'])",
}
USED = {
    "adapter": "lora = LoraConfig(r=8)\nSFTTrainer(model=model, peft_config=lora).train()",
    "wrapped": "lora = LoraConfig(r=8)\nmodel = get_peft_model(model, lora)\nTrainer(model=model).train()",
    "another is used": (
        "a = LoraConfig(r=8)\nb = LoraConfig(r=16)\nSFTTrainer(model=model, peft_config=b).train()"
    ),
    "loaded adapter": "c = LoraConfig(r=8)\nmodel = PeftModel.from_pretrained(model, 'a')\nSFTTrainer(model).train()",
    "a method": "lora = LoraConfig(r=8)\nmodel.add_adapter(lora)\nTrainer(model=model).train()",
    "in a dictionary": "kw = {'peft_config': LoraConfig(r=8)}\nSFTTrainer(model=model, **kw).train()",
    "by a text": "lora = LoraConfig(r=8)\nSFTTrainer(model=model, **{k: globals()[k] for k in ['lora']})",
    "read by parts": "lora = LoraConfig(r=8)\nlog(lora.r)\nSFTTrainer(model=model).train()",
    "no training": "lora = LoraConfig(r=8)",
    "a class of settings": "class Settings:\n    lora = LoraConfig(r=8)\nSFTTrainer(model=model).train()",
    "own loop's arguments": (
        "args = TrainingArguments('o')\nTrainer(model=model, args=args).train()\nprint(args)"
    ),
    "default collator": "c = DataCollatorWithPadding(tok)\nTrainer(model=model, processing_class=tok).train()",
    "collator of a loader": (
        "c = DataCollatorForSeq2Seq(tok)\nloader = DataLoader(d, collate_fn=c)\nTrainer(model=model).train()"
    ),
    "callback added": "stop = EarlyStoppingCallback(3)\nt = Trainer(model=model)\nt.add_callback(stop)\nt.train()",
    "generation of the model": (
        "g = GenerationConfig(do_sample=False)\nmodel.generation_config = g\nmodel.generate(**tok('a'))"
    ),
    "generation of a batch": "g = GenerationConfig(do_sample=False)\nmodel.generate(**tok('a'), generation_config=g)",
    "unknown arguments": "args = TrainingArguments('o')\nTrainer(model=model, **settings).train()",
}


def count_findings(text: str, path: str = "train.py") -> int:
    rule = find_rule("settings-never-passed")
    return len(run_rule(parse_module(text, path), rule).findings)


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_nothing_is_given_is_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", USED.values(), ids=USED)
def test_what_is_used_or_set_otherwise_is_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0


def test_cells_of_a_notebook_are_one_file() -> None:
    cells = [HEAD, "lora = LoraConfig(r=8)", "SFTTrainer(model=model).train()"]
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {"cell_type": "code", "source": cell, "outputs": [], "metadata": {}} for cell in cells
        ],
    }
    assert count_findings(json.dumps(notebook), "a.ipynb") == 1
    cells[2] = "SFTTrainer(model=model, peft_config=lora).train()"
    notebook["cells"] = [
        {"cell_type": "code", "source": cell, "outputs": [], "metadata": {}} for cell in cells
    ]
    assert count_findings(json.dumps(notebook), "a.ipynb") == 0
