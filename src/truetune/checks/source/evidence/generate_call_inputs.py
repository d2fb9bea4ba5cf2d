"""Finds what a call of `generate` is given: its model, its ids, and the tokenizer calls that made
them.

Ids are followed back from the call to the tokenizer that made them: through moves to a device,
dictionaries that are built again, and the collator of a loader. What comes from outside of the file
is not known, and no rule speaks of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.source.evidence.does_tokenizer_call_add_no_pad import surely_adds_no_pad
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

DATA_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
LIGHTNING_LOADERS = {
    "predict_step": "predict_dataloader",
    "test_step": "test_dataloader",
    "validation_step": "val_dataloader",
}
"""Steps of a module of Lightning, and the methods whose loaders give them their batches"""
MAX_STEPS = 3
"""Names of one batch that are followed: a loader's, and that of the batch on the device"""
MAX_WRAPPERS = 8
"""Wrappers and casts of a model that are followed"""


class EncodedIds(NamedTuple):
    """The tokenizer call that ids come from."""

    call: Call
    pads: bool
    """It pads a batch"""
    direct: bool
    """The ids are spelled as its `input_ids`, where `attention_mask` can stand too"""


def generate_calls(module: Module) -> Iterator[Call]:
    """Calls of `generate` of a model."""
    return (
        call
        for call in module.methods("generate")
        if call.receiver and "model" in module.flow.types(call.receiver)
    )


def is_causal_model(module: Module, model: ast.expr) -> bool:
    """Is it a causal language model, as far as the file says?"""
    waiting = [(model, 0)]
    while waiting:
        part, depth = waiting.pop()
        made = [
            origin.node for origin in module.flow.origins(part) if isinstance(origin.node, ast.Call)
        ]
        if any("CausalLM" in ast.unparse(node.func) for node in made):
            return True
        if depth < MAX_WRAPPERS:
            waiting += [
                (inner, depth + 1)
                for node in made
                if (inner := _model_inside_wrapper(module, node)) is not None
            ]
    return False


def _model_inside_wrapper(module: Module, made: ast.Call) -> ast.expr | None:
    """The model inside of a call: that of `base.to("cuda")`, or the one that an adapter is put on;
    None otherwise.
    """
    call = module.flow.call(made)
    if call.named("peft.PeftModel*", "peft.get_peft_model", "torch.compile"):
        return call.argument(0, "model")
    return (
        call.receiver
        if call.method in MEMBERS_GIVING_THE_OBJECT or call.method == "merge_and_unload"
        else None
    )


def has_encoder_models_only(module: Module) -> bool:
    """Are only models with an encoder of their own loaded here? Those take pads on the right."""
    names = [name for call in module.all_calls for name in call.names]
    apart = any(
        part in name
        for name in names
        for part in ("Seq2Seq", "ConditionalGeneration", "EncoderDecoder")
    )
    return apart and not any("CausalLM" in name for name in names)


def input_ids_argument(call: Call) -> ast.expr | None:
    """The ids that `generate` is given as such."""
    return call.argument(0, "inputs") or call.keywords.get("input_ids")


def argument_is_certainly_missing(module: Module, call: Call, name: str) -> bool:
    """Is this argument certainly not given, where `**` spreads nothing but encodings and known
    dictionaries?
    """
    spread = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    unknown = call.open and not (
        spread and all(_is_spread_argument_fully_known(module, value) for value in spread)
    )
    return not unknown and name not in call.keywords


def _is_spread_argument_fully_known(module: Module, spread: ast.expr) -> bool:
    """Is all that `**` spreads known: an encoding, or a dictionary of the file?"""
    return (
        any(encoding_calls_of_dictionary(module, spread))
        or module.flow.dict_entries_and_if_complete(spread)[1]
    )


def encoding_calls_of_dictionary(module: Module, value: ast.expr) -> Iterator[Call]:
    """The calls of a tokenizer, or of its chat template, that made a dictionary of ids and masks.

    Through `.to(...)`, and through a loader to what its collator returns.
    """
    waiting: list[tuple[ast.AST, int]] = [(value, 0)]
    while waiting:
        node, depth = waiting.pop(0)
        bare = _without_device_moves(node) if isinstance(node, ast.expr) else node
        for origin in module.flow.origins(bare):
            inner = _dictionaries_copied_moved_or_batched(module, origin)
            if inner is not None:
                waiting += [(one, depth + 1) for one in inner if depth < MAX_STEPS]
            elif isinstance(origin.node, ast.Call):
                if module.flow.types(origin.node) & {"encoding", "chat"}:
                    yield module.flow.call(origin.node)


def _dictionaries_copied_moved_or_batched(module: Module, origin: Origin) -> list[ast.AST] | None:
    """The dictionaries that one is a copy, a move or a batch of; None where it is made here, or is
    no dictionary.
    """
    made = origin.node
    if isinstance(made, ast.arg):
        return list(_collated_batches_of_lightning_step(module, made)) or None
    if isinstance(made, ast.DictComp):
        return list(_dictionaries_copied_by_comprehension(made))
    if origin.element:
        return _collator_results_in_loop(module, origin)
    if isinstance(made, ast.Call) and _without_device_moves(made) is not made:
        return [made]
    return None


def _dictionaries_copied_by_comprehension(made: ast.DictComp) -> Iterator[ast.expr]:
    """The dictionaries whose entries a comprehension copies one by one: `{k: v.to("cuda") for k, v
    in batch.items()}`.
    """
    for generator in made.generators:
        called = generator.iter.func if isinstance(generator.iter, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "items":
            yield called.value


def _collated_batches_of_lightning_step(module: Module, parameter: ast.arg) -> Iterator[ast.AST]:
    """What the collator of a Lightning data module returns, for the batch parameter of a step.

    `predict_dataloader` feeds `predict_step(self, batch)`.
    """
    arguments = module.scopes.parent.get(parameter)
    function = module.scopes.parent.get(arguments) if arguments is not None else None
    loader_name = LIGHTNING_LOADERS.get(getattr(function, "name", ""))
    if loader_name is None or not isinstance(arguments, ast.arguments):
        return
    if [one.arg for one in arguments.args[1:2]] != [parameter.arg]:
        return
    for part in module.self_and_files_run_together:
        for method in part.nodes(ast.FunctionDef):
            returned = (
                part.flow.returned_expressions_by_function.get(method, [])
                if method.name == loader_name
                else []
            )
            for loader in map(part.flow.producing_call, returned):
                if loader is not None and loader.named(*DATA_LOADERS):
                    yield from _returned_by_collator(part, loader)


def _returned_by_collator(module: Module, loader: Call) -> list[ast.expr]:
    """What the collator of a loader returns; empty where it is not seen."""
    collate_fn_argument = loader.argument(6, "collate_fn")
    function = (
        _collate_function(module, collate_fn_argument) if collate_fn_argument is not None else None
    )
    if function is None:
        return []
    if isinstance(function, ast.Lambda):
        return [function.body]
    return list(module.flow.returned_expressions_by_function.get(function, []))


def _collator_results_in_loop(module: Module, origin: Origin) -> list[ast.AST]:
    """What the collator of a loader returns for a batch: `for rows, batch in loader`."""
    looped = _loader_looped_over(module, origin)
    loader = _loader_construction(module, looped.node) if looped is not None else None
    if looped is None or loader is None:
        return []
    nodes: list[ast.AST] = []
    for value in _returned_by_collator(module, loader):
        for part in looped.path:
            if isinstance(value, ast.Tuple) and 0 <= part < len(value.elts):
                value = value.elts[part]
        nodes.append(value)
    return nodes


def _loader_looped_over(module: Module, origin: Origin) -> Origin | None:
    """What a loop takes its batches from, without `enumerate` and progress bars; None for the
    number of a batch.
    """
    iterated = without_progress_bar_and_enumerate(module, origin.node)
    if not isinstance(iterated, ast.Call) or module.flow.name(iterated.func) != "enumerate":
        return Origin(iterated, origin.path)
    if origin.path[:1] != (1,) or not iterated.args:
        return None
    return Origin(without_progress_bar_and_enumerate(module, iterated.args[0]), origin.path[1:])


def _loader_construction(module: Module, iterated: ast.AST) -> Call | None:
    """The call that makes the loader of a loop, also where accelerate has prepared it; None where
    it is not seen.
    """
    loaders: list[Call] = []
    for origin in module.flow.origins(iterated):
        node = origin.node
        if isinstance(node, ast.Call) and module.flow.call(node).method == "prepare":
            place = origin.path[0] if origin.path else 0
            if 0 <= place < len(node.args):
                inner = module.flow.producing_call(node.args[place])
                loaders += [inner] if inner is not None else []
        elif isinstance(node, ast.Call) and not origin.path:
            loaders.append(module.flow.call(node))
    is_known = len(loaders) == 1 and loaders[0].named(*DATA_LOADERS)
    return loaders[0] if is_known else None


def _collate_function(
    module: Module, expression: ast.expr
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """The function that a loader calls for each batch: given as such, by `functools.partial`, or as
    an object.
    """
    function = module.flow.function_that_expression_names(expression)
    call = module.flow.producing_call(expression) if function is None else None
    if call is None:
        return function
    if call.named("functools.partial") and call.args:
        return module.flow.function_that_expression_names(call.args[0])
    for origin in module.flow.origins(call.node.func):
        for item in origin.node.body if isinstance(origin.node, ast.ClassDef) else ():
            if isinstance(item, ast.FunctionDef) and item.name == "__call__":
                return item
    return None


def encoding_calls_of_input(module: Module, value: ast.expr) -> Iterator[Call]:
    """The calls of a tokenizer that made what `generate` is given: a dictionary, or the ids of one."""
    for origin in module.flow.origins(_without_device_moves(value)):
        inner = _without_device_moves(origin.node) if isinstance(origin.node, ast.expr) else None
        if (
            isinstance(inner, ast.Attribute | ast.Subscript)
            and _constant_attribute_or_key(inner) == "input_ids"
        ):
            yield from encoding_calls_of_dictionary(module, inner.value)
            return
    yield from encoding_calls_of_dictionary(module, value)


def tokenizer_call_of_input_ids(module: Module, ids: ast.expr) -> EncodedIds | None:
    """The call of a tokenizer whose `input_ids` these are; None where they come from elsewhere."""
    for origin in module.flow.origins(_without_device_moves(ids)):
        inner = _without_device_moves(origin.node) if isinstance(origin.node, ast.expr) else None
        if (
            not isinstance(inner, (ast.Attribute, ast.Subscript))
            or _constant_attribute_or_key(inner) != "input_ids"
        ):
            continue
        for call in encoding_calls_of_dictionary(module, inner.value):
            return EncodedIds(
                call,
                does_tokenizer_call_pad(module, call),
                module.text_of(ids).count("input_ids") == 1,
            )
    return None


def does_tokenizer_call_pad(module: Module, call: Call) -> bool:
    """Does this call of a tokenizer pad? A single row is as long as the longest."""
    value = module.flow.value(call.keywords.get("padding"))
    return (
        value is not UNKNOWN
        and value not in (None, False, "do_not_pad")
        and not surely_adds_no_pad(module, call)
    )


def _without_device_moves(node: ast.expr) -> ast.expr:
    """The expression without `.to(...)`, `.cuda()` and the like."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "cuda", "cpu")
    ):
        node = node.func.value
    return node


def without_progress_bar_and_enumerate(module: Module, iterated: ast.AST) -> ast.AST:
    """What a loop iterates, without `tqdm(...)` and `enumerate(...)` around it."""
    while isinstance(iterated, ast.Call) and iterated.args:
        name = module.flow.name(iterated.func) or ""
        if not name.startswith("tqdm"):
            break
        iterated = iterated.args[0]
    return iterated


def _constant_attribute_or_key(node: ast.Attribute | ast.Subscript) -> object:
    """The name of an attribute, or the key of a column; None of a key that varies."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.slice.value if isinstance(node.slice, ast.Constant) else None


GENERATE_CALLS = CodePlaces("calls of a model's generate", generate_calls)
