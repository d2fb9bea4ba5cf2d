"""Statements that look like a step of a training and do nothing."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
FAULTY = {
    "a letter is missing": """
for value in model.parameters():
    value.require_grad = False
""",
    "an attribute instead of a method": """
model.requires_grad_ = False
""",
    "a head": """
model.lm_head.requires_grad = False
""",
    "layers of a loop": """
for layer in model.model.layers[:4]:
    layer.requires_grad = False
""",
    "children": """
for child in list(model.children())[:2]:
    child.requires_grad = False
""",
    "a whole model": """
model.requires_grad = False
""",
    "gradients that are not cleared": """
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad
""",
    "the padding side": """
tokenizer.pading_side = "left"
""",
    "the cache": """
model.config.use_chache = False
""",
}
RIGHT = {
    "tensors under names of modules": """
prompt = SoftPrompt(20)
prompt.embeddings.requires_grad = True
self.head = torch.nn.Parameter(torch.zeros(8))
self.head.requires_grad = False
""",
    "tensors": """
for name, value in model.named_parameters():
    value.requires_grad = 'lora' in name
""",
    "the weight of a head": """
model.lm_head.weight.requires_grad = False
""",
    "the method": """
model.lm_head.requires_grad_(False)
model.eval()
""",
    "an attribute of one's own": """
for value in model.parameters():
    value.require_grad = True
print([value.require_grad for value in model.parameters()])
""",
    "settings of a tokenizer and a model": """
tokenizer.padding_side = "left"
model.config.use_cache = False
model.config.pad_token_id = 0
""",
    "a method that is kept": """
step = optimizer.step
step()
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("statement-does-nothing")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_does_nothing(case: str) -> None:
    """The statement is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_does_something(case: str) -> None:
    """What sets an attribute that is read, or calls a method, is right."""
    assert findings_of(RIGHT[case]) == []
