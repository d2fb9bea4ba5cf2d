"""Tells what a script prepares itself before it trains: the rows, and which weights are frozen.

Rules on settings ask this before they judge a default: a trainer's `max_length` truncates nothing where the script
made ids or batches on its own. What is not seen to be prepared counts as left to the trainer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LIBRARY_COLLATORS = (
    "trl.DataCollator*",
    "transformers.DataCollator*",
    "transformers.default_data_collator",
)
"""Collators that leave the preparation of the rows to the trainer"""
MESSAGE_KEYS = frozenset(("role", "content"))
MAX_DATASET_CALLS = 20
"""Calls of a data set that are followed back: `load().map().filter().shuffle()`. Chosen, not measured: no chain is as
long, and it ends where a data set is mapped in a loop and so comes from itself"""


def trainer_truncates_at_default_length(module: Module, arguments: Call) -> bool:
    """Does the trainer of these arguments cut rows at their default `max_length`?

    It does not under unsloth, which takes the length that the model was loaded with; nor where a collator of the
    script's own makes the batches, or the rows come with ids.
    """
    if module.this_or_linked_file_imports_unsloth:
        return False  # its patched trainer takes the length from the model, not from the arguments
    trainers = [
        call
        for part in module.self_and_files_run_together
        for call in part.calls("trl.SFTTrainer")
        if module.flow.producing_call(call.argument(1, "args")) is arguments
    ]
    return not any(
        _trainer_has_custom_collator(module, call) or _rows_are_tokenized_by_script(module, call)
        for call in trainers
    )


def map_that_makes_or_renders_messages(module: Module) -> Call | None:
    """The first `map` of a script whose function makes messages of a row, or renders it by a chat
    template; None if there is none.

    A message is told by its keys, `role` and `content`. None where no `map` does so.
    """
    return next(
        (
            call
            for call in module.methods("map")
            if _mapped_function_makes_or_renders_messages(module, call)
        ),
        None,
    )


def _mapped_function_makes_or_renders_messages(module: Module, mapped: Call) -> bool:
    """Does the function of a `map` name the keys of a message, or render a chat template?"""
    function_argument = mapped.argument(0, "function")
    function = (
        module.flow.function_that_expression_names(function_argument)
        if function_argument is not None
        else None
    )
    if function is None:
        return False
    nodes = list(ast.walk(function))
    keys = {node.value for node in nodes if isinstance(node, ast.Constant)}
    keys |= {node.arg for node in nodes if isinstance(node, ast.keyword)}
    renders = any(
        isinstance(node, ast.Attribute) and node.attr == "apply_chat_template" for node in nodes
    )
    return renders or keys >= MESSAGE_KEYS


def _trainer_has_custom_collator(module: Module, trainer: Call) -> bool:
    """Does a collator make the batches that is none of the libraries'?"""
    collator = trainer.argument(2, "data_collator")
    if collator is None or module.flow.value(collator) is None:
        return False
    maker = module.flow.producing_call(collator)
    return maker is None or not maker.named(*LIBRARY_COLLATORS)


def _rows_are_tokenized_by_script(module: Module, trainer: Call) -> bool:
    """Are the rows mapped by a function of the script that gives ids?

    The calls of a data set are followed back from the trainer's argument to where the rows were loaded.
    """
    rows = trainer.argument(3, "train_dataset")
    seen = 0
    while rows is not None and seen < MAX_DATASET_CALLS:
        seen += 1
        maker = module.flow.producing_call(rows)
        if maker is None:
            return False
        if maker.method == "map" and maker.args and _returns_token_ids(module, maker.args[0]):
            return True
        rows = maker.receiver
    return False


def _returns_token_ids(module: Module, function: ast.expr) -> bool:
    """Does a function return what a tokenizer gave, or a dictionary with `input_ids`?"""
    node = module.flow.function_that_expression_names(function)
    returned = (
        module.flow.returned_expressions_by_function.get(node, []) if node is not None else []
    )
    if isinstance(node, ast.Lambda):
        returned = [node.body]
    return any(
        "encoding" in module.flow.types(value)
        or "input_ids" in module.flow.dict_entries_and_if_complete(value)[0]
        for value in returned
    )


def script_freezes_parameters(module: Module) -> bool:
    """Does the script freeze parameters itself: `p.requires_grad = False`, `requires_grad_(False)`?"""
    return any(expressions_frozen_by_script(module))


def expressions_frozen_by_script(module: Module) -> Iterator[ast.expr]:
    """The expressions that a script freezes itself: `p` of `p.requires_grad = False`, `model` of
    `model.requires_grad_(False)`.
    """
    for node in module.nodes(ast.Assign):
        if module.flow.value(node.value) is not False:
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                yield target.value
    for call in module.methods("requires_grad_"):
        is_off = module.flow.value(call.argument(0, "requires_grad")) is False
        if is_off and call.receiver is not None:
            yield call.receiver
