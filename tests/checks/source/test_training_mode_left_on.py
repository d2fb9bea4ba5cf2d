"""Models in training mode that generate (SRC053): adapters that are loaded to be trained, Unsloth, callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOADED = """
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("m")
model = PeftModel.from_pretrained(base, "adapter", is_trainable={flag})
{behind}
model.generate(**inputs, max_new_tokens=20)
"""
UNSLOTH = """
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained("m")
{behind}
model.generate(**inputs, max_new_tokens=20)
"""
CALLBACK = """
from transformers import TrainerCallback

class Sample(TrainerCallback):
    def {hook}(self, args, state, control, {parameters}**kwargs):
        {before}
        print(model.generate(**self.inputs, max_new_tokens=20))
"""
TRAINING = "FastLanguageModel.for_training(model)"
INFERENCE = "FastLanguageModel.for_inference(model)"


def callback(hook: str, parameters: str = "model=None, ", before: str = "pass") -> str:
    """A callback that generates in one of its methods."""
    return CALLBACK.format(hook=hook, parameters=parameters, before=before)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LOADED.format(flag=True, behind=""), True),
        (LOADED.format(flag=True, behind="model.print_trainable_parameters()"), True),
        (LOADED.format(flag=True, behind="model.eval()"), False),
        (LOADED.format(flag=False, behind=""), False),
        (UNSLOTH.format(behind=TRAINING), True),
        (UNSLOTH.format(behind=f"{TRAINING}\n{INFERENCE}"), False),
        (UNSLOTH.format(behind=INFERENCE), False),
        (callback("on_step_end"), True),
        (callback("on_epoch_end", "", 'model = kwargs["model"]'), True),
        (callback("on_step_end", before="model.eval()"), False),
        (callback("on_evaluate"), False),
        (callback("on_step_end", "", "model = self.other"), False),
    ],
)
def test_who_switched_the_mode(text: str, found: bool, tmp_path: Path) -> None:
    """Who switches the mode is known by other names than `model.train()`, and who switches it back too."""
    path = tmp_path / "answer.py"
    path.write_text(text, encoding="utf-8")
    assert bool(lint([path], select=("SRC053",)).findings) == found
