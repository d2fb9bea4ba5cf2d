"""An adapter that answers otherwise than its base, and what an engine makes of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from bench.bugs.inputs.answering import PAIRS, RATE, answering, learned
from bench.bugs.inputs.tiny import tokenizer

OTHERS = [(asked, f"I see {i + 5} of them, at least.") for i, (asked, _) in enumerate(PAIRS)]


def adapter(folder: Path, rate: float = RATE) -> None:
    """A base in `folder/model`, an rsLoRA on it in `folder/adapter`, which gives other answers, and their rows."""
    base = answering(folder, pairs=OTHERS, taught=PAIRS)
    config = LoraConfig(
        r=16, lora_alpha=8, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    learned(get_peft_model(base, config), OTHERS, rate=rate).save_pretrained(folder / "adapter")
    tokenizer().save_pretrained(folder / "adapter")


def served(folder: Path, **config: Any) -> None:
    """The adapter once more in `folder/served`, as an engine reads it: with another config."""
    shutil.copytree(folder / "adapter", folder / "served")
    path = folder / "served" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | config), encoding="utf-8")


def renamed(folder: Path, change: Callable[[str], str]) -> None:
    """Other names for the tensors of the adapter in a folder."""
    path = folder / "adapter_model.safetensors"
    save_file(
        {change(name): tensor for name, tensor in load_file(path).items()},
        path,
        metadata={"format": "pt"},
    )
