"""Which generations of compiled models compile again for each prompt length, and which do not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
tok = AutoTokenizer.from_pretrained("m", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("m").to("cuda")
"""
LOOP = """
for prompt in prompts:
    batch = tok(prompt, return_tensors="pt").to("cuda")
    out = model.generate(**batch, max_new_tokens=64)
"""
COMPILE = "model = torch.compile(model, mode='reduce-overhead', dynamic=False)\n"
AGAIN = {
    "model": COMPILE + LOOP,
    "forward": "model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)\n"
    + LOOP,
    "method": "model.compile(dynamic=False)\n" + LOOP,
    "settings": "OPTIONS = dict(dynamic=False)\nmodel = torch.compile(model, **OPTIONS)\n" + LOOP,
    "cache of the model": 'model.generation_config.cache_implementation = "static"\n' + LOOP,
    "cache of the call": LOOP.replace("64)", '64, cache_implementation="static")'),
    "cache of settings": 'config = GenerationConfig(cache_implementation="static")\n'
    + LOOP.replace("64)", "64, generation_config=config)"),
    "batches, longest": COMPILE
    + LOOP.replace('return_tensors="pt"', 'padding=True, return_tensors="pt"'),
    "class": """
class Answerer:
    def __init__(self, model):
        self.model = torch.compile(model, dynamic=False)
    def ask(self, prompt):
        ids = tok.apply_chat_template([{"role": "user", "content": prompt}], return_tensors="pt")
        return self.model.generate(ids, max_new_tokens=64)
answerer = Answerer(model)
answers = [answerer.ask(prompt) for prompt in prompts]
""",
}
ONCE = {
    "plain": LOOP,
    "dynamic": "model = torch.compile(model)\n" + LOOP,
    "fixed length": COMPILE
    + LOOP.replace(
        'return_tensors="pt"', 'padding="max_length", max_length=512, return_tensors="pt"'
    ),
    "multiple": COMPILE
    + LOOP.replace('return_tensors="pt"', "pad_to_multiple_of=128, padding=True"),
    "one prompt": COMPILE + 'out = model.generate(**tok("Hi", return_tensors="pt"))',
    "other model": "other = AutoModelForCausalLM.from_pretrained('o')\n"
    "other = torch.compile(other, dynamic=False)\n" + LOOP,
    "unknown ids": COMPILE + "for ids in batches:\n    model.generate(ids, max_new_tokens=5)\n",
}


def count_findings(text: str) -> int:
    rule = find_rule("compiled-generation-recompiles")
    return len(run_rule(parse_module(HEAD + text, "generate.py"), rule).findings)


@pytest.mark.parametrize("code", AGAIN.values(), ids=AGAIN)
def test_generations_that_compile_again_are_found(code: str) -> None:
    assert count_findings(code) == 1


@pytest.mark.parametrize("code", ONCE.values(), ids=ONCE)
def test_generations_that_compile_once_are_left_alone(code: str) -> None:
    assert count_findings(code) == 0
