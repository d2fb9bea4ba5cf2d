"""Loops whose model nobody moves to the GPU that the file speaks of (SRC034)."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOOP = """
import torch
from transformers import AutoModelForCausalLM

{before}
model = AutoModelForCausalLM.from_pretrained("m"{arguments})
{behind}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
EITHER = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
CONSTANT = "DEVICE = torch.device('cuda:0')"
PRINTED = "print(torch.cuda.get_device_name(0))"
ON_CPU = 'device = "cpu"  # cuda is out of memory'
HELPER = "def place(thing):\n    return thing.to(device)\n"


@pytest.mark.parametrize(
    ("before", "arguments", "behind", "found"),
    [
        (EITHER, "", "", True),
        (CONSTANT, ", dtype=torch.float32", "", True),
        (PRINTED, "", "model.train()", True),
        (EITHER, "", "model.to(device)", False),
        (CONSTANT, "", "model.cuda()", False),
        (EITHER, ', device_map="auto"', "", False),
        (EITHER, ", **options", "", False),
        (f"{EITHER}\n{HELPER}", "", "model = place(model)", False),
        (ON_CPU, "", "", False),
        ("", "", "", False),
        (EITHER, "", "model, loader = accelerator.prepare(model, loader)", False),
    ],
)
def test_models_of_loops(
    before: str, arguments: str, behind: str, found: bool, tmp_path: Path
) -> None:
    """A device that is found and never used leaves the model where it was loaded."""
    path = tmp_path / "train.py"
    path.write_text(
        LOOP.format(before=before, arguments=arguments, behind=behind), encoding="utf-8"
    )
    assert bool(lint([path], select=("SRC034",)).findings) == found
