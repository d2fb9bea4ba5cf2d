"""LLaMA-Factory settings and their data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.bugs.inputs.stacks import llama_factory


def make(folder: Path, broken: bool, tokenizer: Any) -> None:
    llama_factory(folder, train_on_prompt=broken)
