"""An Axolotl config and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.bugs.inputs.stacks import axolotl


def make(folder: Path, broken: bool, tokenizer: Any) -> None:
    axolotl(folder, roles_to_train=["assistant"], train_on_eos="none" if broken else "turn")
