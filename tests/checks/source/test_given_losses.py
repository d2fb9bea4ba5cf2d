"""Losses that a trainer is given as `compute_loss_func` (SRC013)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

MEAN = "def f(outputs, labels{}):\n    return torch.nn.functional.cross_entropy(outputs.logits, labels)\n"
SUM = (
    "def f(outputs, labels, num_items_in_batch=None, eps=0.0):\n"
    "    loss = torch.nn.functional.cross_entropy(outputs.logits, labels, reduction='sum')\n"
    "    return loss / num_items_in_batch\n"
)
COUNT = ", num_items_in_batch=None"
TRAIN = (
    "Trainer(model, TrainingArguments('out', gradient_accumulation_steps={}), compute_loss_func={})"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MEAN.format(COUNT) + TRAIN.format(8, "f"), True),
        (MEAN.format(", **more") + TRAIN.format(8, "f"), True),
        (MEAN.format("") + TRAIN.format(1, "f"), True),
        (
            f"from functools import partial\n{MEAN.format(', eps=0.1' + COUNT)}"
            + TRAIN.format(4, "partial(f, eps=0.2)"),
            True,
        ),
        (
            "class F:\n    def __call__(self, outputs, labels, num_items_in_batch=None):\n"
            "        return outputs.loss\n" + TRAIN.format(4, "F()"),
            True,
        ),
        (TRAIN.format(4, "lambda outputs, labels, num_items_in_batch=None: outputs.loss"), True),
        (MEAN.format(COUNT) + TRAIN.format(1, "f"), False),
        (MEAN.format(COUNT), False),
        (SUM + TRAIN.format(8, "f"), False),
        (
            f"from functools import partial\n{SUM}" + TRAIN.format(8, "partial(f, eps=0.1)"),
            False,
        ),
        (
            f"{SUM}def g(outputs, labels, **more):\n    return f(outputs, labels, **more)\n"
            + TRAIN.format(8, "g"),
            False,
        ),
        ("from other import loss\n" + TRAIN.format(8, "loss"), False),
    ],
)
def test_loss_functions_that_ignore_the_number_of_items(
    text: str, found: bool, tmp_path: Path
) -> None:
    assert codes(text, tmp_path, "SRC013") == ["SRC013e"] * found
