"""Saves of a model with an adapter."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
model = get_peft_model(AutoModelForCausalLM.from_pretrained("model"), LoraConfig(r=8))
"""
FAULTY = {
    "by its method": """
model.get_base_model().save_pretrained('out')
""",
    "by its attributes": """
model.base_model.model.save_pretrained('out')
""",
    "under another name": """
inner = model.get_base_model()
inner.save_pretrained('out')
""",
}
RIGHT = {
    "the wrapper": """
model.save_pretrained('out')
""",
    "merged": """
merged = model.merge_and_unload()
merged.save_pretrained('out')
""",
    "plain layers put back": """
inner = model.get_base_model()
for layer in inner.layers:
    layer.q_proj = layer.q_proj.base_layer
inner.save_pretrained('out')
""",
    "merged in place": """
model.merge_adapter()
model.get_base_model().save_pretrained('out')
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("model-inside-the-adapter-saved")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_inner_model_saved(case: str) -> None:
    """The save is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_whole_saved(case: str) -> None:
    """The wrapper, and a merged model, are right."""
    assert findings_of(RIGHT[case]) == []
