"""What a script makes ready itself before it trains: the rows, and which weights take part."""

from __future__ import annotations

import ast

from truetune.source.calls import Call
from truetune.source.module import Module

LIBRARY_COLLATORS = (
    "trl.DataCollator*",
    "transformers.DataCollator*",
    "transformers.default_data_collator",
)
"""Collators that leave the preparation of the rows to the trainer"""


def trainer_truncates_rows(module: Module, arguments: Call) -> bool:
    """Does the trainer of these arguments cut rows at their default `max_length`?

    It does not under unsloth, which takes the length that the model was loaded with; nor where a collator of the
    script's own makes the batches, or the rows come with ids.
    """
    if module.imports_unsloth:
        return False
    trainers = [
        call
        for part in module.with_linked
        for call in part.calls("trl.SFTTrainer")
        if module.flow.producing_call(call.argument(1, "args")) is arguments
    ]
    return not any(
        _has_own_collator(module, call) or _rows_are_tokenized(module, call) for call in trainers
    )


def find_message_mapping(module: Module) -> Call | None:
    """The first `map` of a script whose function makes messages of a row, or renders it by a chat template.

    A message is told by its keys, `role` and `content`. None where no `map` does so.
    """
    return next((call for call in module.methods("map") if _makes_messages(module, call)), None)


def _makes_messages(module: Module, mapped: Call) -> bool:
    given = mapped.argument(0, "function")
    function = module.flow.function(given) if given is not None else None
    if function is None:
        return False
    nodes = list(ast.walk(function))
    keys = {node.value for node in nodes if isinstance(node, ast.Constant)}
    keys |= {node.arg for node in nodes if isinstance(node, ast.keyword)}
    renders = any(
        isinstance(node, ast.Attribute) and node.attr == "apply_chat_template" for node in nodes
    )
    return renders or keys >= MESSAGE_KEYS


MESSAGE_KEYS = frozenset(("role", "content"))


def _has_own_collator(module: Module, trainer: Call) -> bool:
    collator = trainer.argument(2, "data_collator")
    if collator is None or module.flow.value(collator) is None:
        return False
    made = module.flow.producing_call(collator)
    return made is None or not made.named(*LIBRARY_COLLATORS)


def _rows_are_tokenized(module: Module, trainer: Call) -> bool:
    """Are the rows mapped by a function of the script that gives ids?"""
    rows = trainer.argument(3, "train_dataset")
    seen = 0
    while rows is not None and seen < MAX_DATASET_CALLS:
        seen += 1
        made = module.flow.producing_call(rows)
        if made is None:
            return False
        if made.method == "map" and made.args and _returns_token_ids(module, made.args[0]):
            return True
        rows = made.receiver
    return False


MAX_DATASET_CALLS = 20
"""Calls of a data set that are followed back: `load().map().filter().shuffle()`"""


def _returns_token_ids(module: Module, function: ast.expr) -> bool:
    node = module.flow.function(function)
    returned = (
        [node.body]
        if isinstance(node, ast.Lambda)
        else module.flow.returns.get(node, [])
        if node
        else []
    )
    return any(
        "encoding" in module.flow.types(value) or "input_ids" in module.flow.entries(value)[0]
        for value in returned
    )


def freezes_parameters(module: Module) -> bool:
    """Does the script freeze parameters itself: `p.requires_grad = False`, `requires_grad_(False)`?"""
    for node in module.nodes(ast.Assign):
        sets = any(
            isinstance(target, ast.Attribute) and target.attr == "requires_grad"
            for target in node.targets
        )
        if sets and module.flow.value(node.value) is False:
            return True
    return any(
        module.flow.value(call.argument(0, "requires_grad")) is False
        for call in module.methods("requires_grad_")
    )
