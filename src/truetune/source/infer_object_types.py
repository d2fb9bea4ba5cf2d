"""Infers what sort of object an expression is: tokenizer, model, trainer, data set and so on.

The types are: tokenizer, processor, model, peft-model (is also a model), trainer, arguments (of a trainer), collator,
dataset, loader, optimizer, scheduler, lora, accelerator, chat (the result of `apply_chat_template`), encoding (the
result of a call of a tokenizer), generated (ids that `generate` returned).

How it works: each origin of the expression (`data_flow.py`) is judged by what made it. A call is judged by the
qualified name of the function, by a table of name patterns; a method by its name and by the type of its object; a
parameter by its annotation, else by its name. An expression has the types of all its origins.

The trade-off: names of the usual libraries are known and nothing is executed or imported, so any script can be judged
where its libraries are not installed. What a wrapper of the project's own returns has no type, unless its code is
among the files; rules then say nothing about it.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truetune.source.data_flow import DataFlow, Origin

MAX_NESTED_CALLS = 60
"""Calls of calls that are followed (`f(g(h(x)))` is three). Chosen, not measured: chains of a data set's methods stay
below it, and Python's own recursion limit is far above."""
# The first pattern that fits decides, so narrow patterns stand before wide ones: `trl.*TrainingArguments` before
# `trl.*Config`, and `torch.optim.lr_scheduler.*` before `torch.optim.*`, which would take its names too.
TYPE_OF_CALLED_NAME: tuple[tuple[str, str], ...] = (
    ("transformers.*Tokenizer*.from_pretrained", "tokenizer"),
    ("transformers.*Tokenizer*", "tokenizer"),
    ("transformers.*Processor.from_pretrained", "processor"),
    ("peft.get_peft_model", "peft-model"),
    ("peft.PeftModel*.from_pretrained", "peft-model"),
    ("peft.AutoPeftModel*.from_pretrained", "peft-model"),
    ("peft.PeftModel*", "peft-model"),
    ("peft.inject_adapter_in_model", "peft-model"),
    ("unsloth.Fast*Model.get_peft_model", "peft-model"),
    ("peft.prepare_model_for_kbit_training", "model"),
    ("transformers.AutoModel*", "model"),
    ("transformers.*For*.from_*", "model"),
    ("transformers.*Model.from_*", "model"),
    ("transformers.*For*LM", "model"),
    ("transformers.*LMHeadModel*", "model"),
    ("trl.*TrainingArguments", "arguments"),
    ("transformers.*TrainingArguments", "arguments"),
    ("trl.*Config", "arguments"),
    ("transformers.*Trainer", "trainer"),
    ("trl.*Trainer", "trainer"),
    ("unsloth.*Trainer", "trainer"),
    ("unsloth*train_on_responses_only", "trainer"),  # gives back the trainer that it is given
    ("unsloth*get_chat_template", "tokenizer"),  # gives back the tokenizer, with another template
    ("transformers.DataCollator*", "collator"),
    ("transformers.default_data_collator", "collator"),
    ("trl.DataCollator*", "collator"),
    ("datasets.load_dataset", "dataset"),
    ("datasets.load_from_disk", "dataset"),
    ("datasets.*Dataset*.from_*", "dataset"),
    ("datasets.concatenate_datasets", "dataset"),
    ("datasets.interleave_datasets", "dataset"),
    ("torch.utils.data.DataLoader", "loader"),
    ("torch.utils.data.dataloader.DataLoader", "loader"),
    ("torch.optim.lr_scheduler.*", "scheduler"),
    ("torch.optim.*", "optimizer"),
    ("bitsandbytes.optim.*", "optimizer"),
    ("transformers.AdamW", "optimizer"),
    ("transformers.Adafactor", "optimizer"),
    ("transformers.get_scheduler", "scheduler"),
    ("transformers.get_*_schedule*", "scheduler"),
    ("diffusers.optimization.get_*", "scheduler"),
    ("peft.*LoraConfig", "lora"),
    ("accelerate.Accelerator", "accelerator"),
)
MEMBERS_GIVING_THE_OBJECT = frozenset(
    {"to", "cuda", "cpu", "half", "float", "bfloat16", "eval", "train", "requires_grad_", "module"}
)
"""Methods and attributes that give the object itself"""
COPIES = ("copy.copy", "copy.deepcopy")
"""Functions that give an object of the type that they are given"""
DATASET_METHODS_GIVING_A_DATASET = frozenset(
    {
        "map",
        "filter",
        "select",
        "shuffle",
        "train_test_split",
        "rename_column",
        "rename_columns",
        "remove_columns",
        "select_columns",
        "with_format",
        "take",
        "skip",
        "sort",
        "cast",
        "shard",
        "flatten",
        "add_column",
        "batch",
    }
)
ENCODING_METHODS = frozenset({"encode_plus", "batch_encode_plus", "pad"})
"""Methods of a tokenizer that give a BatchEncoding; `encode` gives a plain list of ids"""
METHODS_GIVING_THE_BASE = frozenset({"merge_and_unload", "unload", "get_base_model"})
"""Methods of an adapted model that give one without an adapter"""
TYPE_OF_PARAMETER_NAME = {
    "tokenizer": "tokenizer",
    "tok": "tokenizer",
    "processing_class": "tokenizer",
}
"""Names of parameters that say what they are"""
TYPE_OF_ANNOTATION: tuple[tuple[str, str], ...] = (
    ("transformers.*Tokenizer*", "tokenizer"),
    ("transformers.PreTrainedModel", "model"),
    ("peft.PeftModel*", "peft-model"),
    ("datasets.*Dataset*", "dataset"),
)


def infer_types(flow: DataFlow, node: ast.AST, depth: int = 0) -> frozenset[str]:
    """The types of object that an expression may be, by all its origins.

    Args:
        flow: The data flow of the files; it keeps what was inferred.
        node: The expression.
        depth: Calls that were followed so far.

    Returns:
        Empty where nothing is known.
    """
    if node in flow.known_types:
        return flow.known_types[node]
    if depth > MAX_NESTED_CALLS:
        return frozenset()
    # `model = model.to(device)` in a loop is defined by itself: the inner question finds this and gives the rest.
    flow.known_types[node] = frozenset()
    inferred: set[str] = set()
    for origin in flow.origins(node):
        inferred |= _types_of_origin(flow, origin, depth)
    if "peft-model" in inferred:
        inferred.add("model")
    flow.known_types[node] = frozenset(inferred)
    return flow.known_types[node]


def _types_of_origin(flow: DataFlow, origin: Origin, depth: int) -> frozenset[str]:
    """The types of one origin; empty for an element of a loop, for the table is about whole objects."""
    node = origin.node
    if origin.element:
        return frozenset()
    if isinstance(node, ast.Call):
        return _types_of_call(flow, node, origin.path, depth)
    if isinstance(node, ast.arg):
        return _types_of_parameter_by_annotation_or_name(flow, node)
    if isinstance(node, ast.Subscript):
        # `splits["train"]` is a data set too; an item of a tokenizer's or model's is something else.
        return infer_types(flow, node.value, depth + 1) & {"dataset"}
    if isinstance(node, ast.Attribute):
        return _types_of_attribute(flow, node, depth)
    return frozenset()


def _types_of_call(
    flow: DataFlow, node: ast.Call, path: tuple[int, ...], depth: int
) -> frozenset[str]:
    """The types of what a call returns; `path` says which part of a returned tuple is meant."""
    for name in flow.names(node.func):
        if fnmatchcase(name, "unsloth.Fast*Model.from_pretrained"):
            # It returns the pair (model, tokenizer), which scripts take apart at once.
            types_of_pair = {(0,): "model", (1,): "tokenizer"}
            return frozenset({types_of_pair[path]} if path in types_of_pair else ())
        for pattern, inferred in TYPE_OF_CALLED_NAME:
            if fnmatchcase(name, pattern):
                return frozenset({inferred})
        if name in COPIES and node.args:
            return infer_types(flow, node.args[0], depth + 1)
    if not isinstance(node.func, ast.Attribute):
        return _types_of_tokenizer_call_result(flow, node.func, depth)
    if flow.values_assigned_to_attribute(
        node.func
    ):  # `self.tokenizer(texts)`: an attribute that holds an object, no method
        inferred_by_call = _types_of_tokenizer_call_result(flow, node.func, depth)
        if inferred_by_call:
            return inferred_by_call
    return _types_of_method_call(flow, node, node.func, path, depth)


def _types_of_tokenizer_call_result(flow: DataFlow, called: ast.expr, depth: int) -> frozenset[str]:
    """The types of `tokenizer(...)`; empty for other objects, whose calls nothing is known of."""
    if "tokenizer" in infer_types(flow, called, depth + 1):
        return frozenset({"encoding"})
    return frozenset()


def _types_of_method_call(
    flow: DataFlow, node: ast.Call, method: ast.Attribute, path: tuple[int, ...], depth: int
) -> frozenset[str]:
    """The types of what a method returns, by its name and the types of its object."""
    name = method.attr
    if name == "apply_chat_template":  # no other library has a method of this name
        return frozenset({"chat"})
    receiver = infer_types(flow, method.value, depth + 1)
    if name in MEMBERS_GIVING_THE_OBJECT:
        return receiver
    if "dataset" in receiver and name in DATASET_METHODS_GIVING_A_DATASET:
        return receiver
    if "accelerator" in receiver and name == "prepare":
        prepared = _argument_returned_by_accelerator_prepare(node, path)
        return frozenset() if prepared is None else infer_types(flow, prepared, depth + 1)
    return _types_of_method_of_model_or_tokenizer(name, receiver)


def _types_of_method_of_model_or_tokenizer(method: str, receiver: frozenset[str]) -> frozenset[str]:
    """The types of what a method makes of a model or tokenizer."""
    if "model" in receiver and method == "generate":
        return frozenset({"generated"})
    if "model" in receiver and method in METHODS_GIVING_THE_BASE:
        return frozenset({"model"})
    if "tokenizer" in receiver and method in ENCODING_METHODS:
        return frozenset({"encoding"})
    return frozenset()


def _argument_returned_by_accelerator_prepare(
    node: ast.Call, path: tuple[int, ...]
) -> ast.expr | None:
    """The argument that `accelerator.prepare` gives back here: it returns its arguments in their order."""
    if path:
        return node.args[path[0]] if 0 <= path[0] < len(node.args) else None
    return node.args[0] if len(node.args) == 1 else None


def _types_of_parameter_by_annotation_or_name(flow: DataFlow, node: ast.arg) -> frozenset[str]:
    """The types of a parameter that no call in the files gives: by its annotation, else by its name."""
    names = flow.names(node.annotation) if node.annotation is not None else ()
    for name in names:
        for pattern, inferred in TYPE_OF_ANNOTATION:
            if fnmatchcase(name, pattern):
                return frozenset({inferred})
    if node.arg == "model" and flow.is_callback_parameter_from_trainer(node):
        return frozenset({"model"})
    # `tokenizer: Lexer` is no tokenizer of transformers: an annotation with a known name overrules the name.
    if not names and node.arg in TYPE_OF_PARAMETER_NAME:
        return frozenset({TYPE_OF_PARAMETER_NAME[node.arg]})
    return frozenset()


def _types_of_attribute(flow: DataFlow, node: ast.Attribute, depth: int) -> frozenset[str]:
    """The types of `trainer.model`, `processor.tokenizer`, `self.tokenizer` and the like."""
    receiver = infer_types(flow, node.value, depth + 1)
    if node.attr in MEMBERS_GIVING_THE_OBJECT:
        return receiver
    if "trainer" in receiver and node.attr == "model":
        return frozenset({"model"})
    if "trainer" in receiver and node.attr in ("tokenizer", "processing_class"):
        return frozenset({"tokenizer"})
    if node.attr != "tokenizer":
        return frozenset()
    is_of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
    return frozenset({"tokenizer"} if is_of_self or "processor" in receiver else ())
