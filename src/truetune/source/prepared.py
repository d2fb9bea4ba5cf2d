"""Who makes the rows of a TRL trainer ready: the trainer itself, or the script before it."""

from __future__ import annotations

import ast

from truetune.source.calls import Call
from truetune.source.module import Module

OF_TRL = ("trl.DataCollator*", "transformers.DataCollator*", "transformers.default_data_collator")
"""Collators that leave the preparation of the rows to the trainer"""


def cuts_rows(module: Module, arguments: Call) -> bool:
    """Does the trainer of these arguments cut rows at their default `max_length`?

    It does not under unsloth, which takes the length that the model was loaded with; nor where a collator of the
    script's own makes the batches, or the rows come with ids.
    """
    if any(name.partition(".")[0] == "unsloth" for call in module.all_calls for name in call.names):
        return False
    trainers = [
        call for call in module.calls("trl.SFTTrainer") if module.flow.made(call.argument(1, "args")) is arguments
    ]
    return not any(_own_collator(module, call) or _has_ids(module, call) for call in trainers)


def _own_collator(module: Module, trainer: Call) -> bool:
    collator = trainer.argument(2, "data_collator")
    if collator is None or module.flow.value(collator) is None:
        return False
    made = module.flow.made(collator)
    return made is None or not made.named(*OF_TRL)


def _has_ids(module: Module, trainer: Call) -> bool:
    """Are the rows mapped by a function of the script that gives ids?"""
    rows = trainer.argument(3, "train_dataset")
    seen = 0
    while rows is not None and seen < MOST_STEPS:
        seen += 1
        made = module.flow.made(rows)
        if made is None:
            return False
        if made.method == "map" and made.args and _gives_ids(module, made.args[0]):
            return True
        rows = made.receiver
    return False


MOST_STEPS = 20
"""Calls of a data set that are followed back: `load().map().filter().shuffle()`"""


def _gives_ids(module: Module, function: ast.expr) -> bool:
    node = module.flow.function(function)
    returned = [node.body] if isinstance(node, ast.Lambda) else module.flow.returns.get(node, []) if node else []
    return any(
        "encoding" in module.flow.kinds(value) or "input_ids" in module.flow.entries(value)[0] for value in returned
    )
