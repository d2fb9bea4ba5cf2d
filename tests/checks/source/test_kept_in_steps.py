"""What the steps of a Lightning module keep of the model's outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

MODULE = """
import lightning as L
from transformers import AutoModelForCausalLM

class Tuned(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("some/base")
        self.kept = []

    def {step}(self, batch, number):
        out = self.model(**batch)
        {keep}
        return out.loss
"""


def count(folder: Path, keep: str, step: str = "validation_step") -> int:
    """How often the rule speaks of a module whose step keeps something."""
    path = folder / "tuned.py"
    path.write_text(MODULE.format(keep=keep, step=step), encoding="utf-8")
    return len(lint([str(path)], select=["outputs-kept-on-the-device"]).findings)


@pytest.mark.parametrize(
    "keep",
    ["self.kept.append(out.logits)", 'self.kept.append({"logits": out.logits, "n": number})'],
)
def test_logits_of_every_step_are_found(keep: str, tmp_path: Path) -> None:
    assert count(tmp_path, keep) == 1


@pytest.mark.parametrize(
    ("keep", "step"),
    [
        ("self.kept.append(out.logits.argmax(-1))", "validation_step"),
        ("self.kept.append(out.logits.detach().cpu())", "validation_step"),
        ("parts = []; parts.append(out.logits)", "validation_step"),
        ("self.kept.append(out.logits)", "forward"),
    ],
)
def test_what_stays_small_is_left_alone(keep: str, step: str, tmp_path: Path) -> None:
    assert count(tmp_path, keep, step) == 0
