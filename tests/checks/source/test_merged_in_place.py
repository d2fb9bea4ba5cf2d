"""Merges whose result is not kept: those that lose it, and those that take the merged model below the wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("some/base")
model = PeftModel.from_pretrained(base, "adapter")
model.merge_and_unload()
"""
LOST = (
    'model.save_pretrained("out")',
    'model.push_to_hub("me/merged")',
    "print(model.generate(ids))",
    'merged = model\nmerged.save_pretrained("out")',
    'model.base_model.save_pretrained("out")',
    'print(model.get_base_model())\nmodel.save_pretrained("out")',
)
KEPT = (
    'model.get_base_model().save_pretrained("out")',
    'merged = model.get_base_model()\nmerged.save_pretrained("out")',
    'model.base_model.model.save_pretrained("out")',
    'model = model.get_base_model()\nmodel.save_pretrained("out")',
    'del model\nbase.save_pretrained("out")',
    'base.save_pretrained("out")',
)


def rules_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "merge.py"
    path.write_text(text, encoding="utf-8")
    return [one.rule for one in lint([str(path)], select=("SRC048",)).findings]


@pytest.mark.parametrize("end", LOST)
def test_a_wrapper_that_is_used_again(tmp_path: Path, end: str) -> None:
    assert rules_of(tmp_path, f"{HEAD}{end}\n") == ["merge-result-dropped"]


@pytest.mark.parametrize("end", KEPT)
def test_the_model_below_the_wrapper(tmp_path: Path, end: str) -> None:
    assert rules_of(tmp_path, f"{HEAD}{end}\n") == []
