"""Which reentrant checkpoints lose the gradients, and which only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from peft import LoraConfig, PromptTuningConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import SFTTrainer
model = AutoModelForCausalLM.from_pretrained("a/b")
REENTRANT = {"use_reentrant": True}
config = LoraConfig(r=8, target_modules="all-linear")
"""
LOOP = "for batch in loader:\n    model(**batch).loss.backward()\n"
WRAP = "model = get_peft_model(model, config)\n"
ENABLE = "model.gradient_checkpointing_enable(REENTRANT)\n"
ARGUMENTS = "args = TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs=REENTRANT)\n"
OWN_MODEL = """
class Net(torch.nn.Module):
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x
model = Net()
"""
OWN_LOOP = "for batch in loader:\n    model(batch).sum().backward()\n"
LOST = {
    "loop": WRAP + ENABLE + LOOP,
    "by keyword": WRAP + ENABLE.replace("(R", "(gradient_checkpointing_kwargs=R") + LOOP,
    "dict": WRAP + ENABLE.replace("REENTRANT", "dict(use_reentrant=True)") + LOOP,
    "functions": (
        "def adapted(m):\n    return get_peft_model(m, config)\n"
        "def lean(m):\n    m.gradient_checkpointing_enable(REENTRANT)\n    return m\n"
        "model = lean(adapted(model))\n" + LOOP
    ),
    "trainer": WRAP + ARGUMENTS + "Trainer(model=model, args=args).train()\n",
    "own model": OWN_MODEL + "model.requires_grad_(False)\n" + OWN_LOOP,
    "parameters": (
        OWN_MODEL + "for p in model.parameters():\n    p.requires_grad = False\n" + OWN_LOOP
    ),
    "none to save": (
        WRAP.replace("config", "LoraConfig(target_modules=['q_proj'], modules_to_save=None)")
        + ENABLE
        + LOOP
    ),
    "k-bit without it": (
        "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)\n"
        + WRAP
        + ENABLE
        + LOOP
    ),
    "ddp": ENABLE + "model = DDP(model, find_unused_parameters=True)\n" + LOOP,
}
KEPT = {
    "not reentrant": WRAP + ENABLE.replace("REENTRANT", "{'use_reentrant': False}") + LOOP,
    "default of today": WRAP + ENABLE.replace("REENTRANT", "") + LOOP,
    "enabled before": ENABLE + WRAP + LOOP,
    "enabled inputs": WRAP + "model.enable_input_require_grads()\n" + ENABLE + LOOP,
    "hook": (
        WRAP
        + ENABLE
        + "model.get_input_embeddings().register_forward_hook(lambda m, i, o: o.requires_grad_(True))\n"
        + LOOP
    ),
    "nothing frozen": ENABLE + LOOP,
    "prompts": WRAP.replace("config", "PromptTuningConfig(num_virtual_tokens=8)") + ENABLE + LOOP,
    "embedding saved": (
        WRAP.replace("config", "LoraConfig(modules_to_save=['embed_tokens'])") + ENABLE + LOOP
    ),
    "embedding adapted": (
        WRAP.replace("config", "LoraConfig(target_modules=['embed_tokens', 'q_proj'])")
        + ENABLE
        + LOOP
    ),
    "k-bit": "model = prepare_model_for_kbit_training(model)\n" + WRAP + ENABLE + LOOP,
    "trl": WRAP + ENABLE + "SFTTrainer(model=model).train()\n",
    "open settings": WRAP + "model.gradient_checkpointing_enable(given)\n" + LOOP,
    "a part frozen": OWN_MODEL + "model.head.requires_grad_(False)\n" + OWN_LOOP,
    "trained again": (
        OWN_MODEL + "model.requires_grad_(False)\nmodel.embed.requires_grad_(True)\n" + OWN_LOOP
    ),
    "asked for only": WRAP + ENABLE + "model.generate(**batch)\n",
    "static graph": (
        ENABLE + "model = DDP(model, find_unused_parameters=True, static_graph=True)\n" + LOOP
    ),
    "ddp alone": ENABLE + "model = DDP(model)\n" + LOOP,
    "in a branch": WRAP + "if lean:\n    " + ENABLE + LOOP,
}


def findings_in(text: str, folder: Path, pinned: str = "") -> int:
    if pinned:
        (folder / "requirements.txt").write_text(pinned, encoding="utf-8")
    path = folder / "train.py"
    path.write_text(HEAD + text, encoding="utf-8")
    module = parse_module(HEAD + text, str(path))
    return len(run_rule(module, find_rule("reentrant-checkpoints-lose-gradients")).findings)


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_lost_gradients_are_found(text: str, tmp_path: Path) -> None:
    assert findings_in(text, tmp_path) == 1


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_gradients_that_pass_are_left_alone(text: str, tmp_path: Path) -> None:
    assert findings_in(text, tmp_path) == 0


@pytest.mark.parametrize(
    ("pinned", "expected"), [("transformers==4.51.3\n", 1), ("transformers==5.2.0\n", 0)]
)
def test_the_pinned_release_says_the_default(pinned: str, expected: int, tmp_path: Path) -> None:
    text = WRAP + ENABLE.replace("REENTRANT", "") + LOOP
    assert findings_in(text, tmp_path, pinned) == expected
