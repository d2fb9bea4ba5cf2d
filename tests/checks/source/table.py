"""What the tables of the source rules share: a head of imports, and the codes that a text gives."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from truetune.checks.lint import lint

HEAD = """
import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import *

tok = AutoTokenizer.from_pretrained("org/some")
model = AutoModelForCausalLM.from_pretrained("org/some")
ds = load_dataset("org/rows")
"""


def codes(text: str, folder: Path, *select: str) -> list[str]:
    """Codes of findings of the selected rules, each followed by the first letter of its severity, sorted."""
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text), encoding="utf-8")
    return sorted(f"{f.code}{f.severity[0]}" for f in lint([path], select=select).findings)
