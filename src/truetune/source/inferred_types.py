"""Kinds: what sort of object an expression is.

tokenizer, processor, model, peft-model (is also a model), trainer, arguments (of a trainer), collator, dataset, loader,
optimizer, scheduler, lora, accelerator, chat (the result of `apply_chat_template`), encoding (the result of a call of a
tokenizer), generated (ids that `generate` returned).
"""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truetune.source.data_flow import DataFlow, Origin

MAX_NESTED_CALLS = 60
"""Calls of calls that are followed"""
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
DATASET_METHODS_GIVING_A_DATASET = frozenset(
    (
        "map",
        "filter",
        "select",
        "shuffle",
        "train_test_split",
        "rename_column",
        "rename_columns",
        "remove_columns",
    )
    + (
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
    )
)
TYPE_OF_PARAMETER_NAME = {
    "tokenizer": "tokenizer",
    "tok": "tokenizer",
    "processing_class": "tokenizer",
}
"""Names of parameters that say what they are"""
PREPARED = ("transformers", "accelerate", "trl")


def infer_types(flow: DataFlow, node: ast.AST, depth: int = 0) -> frozenset[str]:
    """The kinds that the origins of an expression have; of what is defined by itself, those of the rest."""
    if node in flow.known_kinds:
        return flow.known_kinds[node]
    if depth > MAX_NESTED_CALLS:
        return frozenset()
    flow.known_kinds[node] = frozenset()
    found: set[str] = set()
    for origin in flow.origins(node):
        found |= _types_of_origin(flow, origin, depth)
    if "peft-model" in found:
        found.add("model")
    flow.known_kinds[node] = frozenset(found)
    return flow.known_kinds[node]


def _types_of_origin(flow: DataFlow, origin: Origin, depth: int) -> frozenset[str]:
    node = origin.node
    if origin.element:
        return frozenset()
    if isinstance(node, ast.Call):
        return _types_of_call(flow, node, origin.path, depth)
    if isinstance(node, ast.arg):
        return _types_of_parameter(flow, node)
    if isinstance(node, ast.Subscript):
        inner = infer_types(flow, node.value, depth + 1)
        return inner & {"dataset"}
    if isinstance(node, ast.Attribute):
        return _types_of_attribute(flow, node, depth)
    return frozenset()


def _types_of_call(
    flow: DataFlow, node: ast.Call, path: tuple[int, ...], depth: int
) -> frozenset[str]:
    for name in flow.names(node.func):
        if fnmatchcase(name, "unsloth.Fast*Model.from_pretrained"):
            return frozenset({("model", "tokenizer")[path[0]]} if path in ((0,), (1,)) else ())
        kind = next(
            (kind for pattern, kind in TYPE_OF_CALLED_NAME if fnmatchcase(name, pattern)), None
        )
        if kind is not None:
            return frozenset({kind})
    if not isinstance(node.func, ast.Attribute):
        return (
            frozenset({"encoding"})
            if "tokenizer" in infer_types(flow, node.func, depth + 1)
            else frozenset()
        )
    if flow.assigned(node.func) and "tokenizer" in infer_types(flow, node.func, depth + 1):
        return frozenset({"encoding"})
    method = node.func.attr
    if method == "apply_chat_template":
        return frozenset({"chat"})
    receiver = infer_types(flow, node.func.value, depth + 1)
    if method in MEMBERS_GIVING_THE_OBJECT or (
        method in DATASET_METHODS_GIVING_A_DATASET and "dataset" in receiver
    ):
        return receiver
    if method == "prepare" and "accelerator" in receiver:
        if path and 0 <= path[0] < len(node.args):
            return infer_types(flow, node.args[path[0]], depth + 1)
        return (
            infer_types(flow, node.args[0], depth + 1)
            if len(node.args) == 1 and not path
            else frozenset()
        )
    if method == "generate" and "model" in receiver:
        return frozenset({"generated"})
    if method in ("merge_and_unload", "unload", "get_base_model") and "model" in receiver:
        return frozenset({"model"})
    return (
        frozenset({"encoding"})
        if method in ("encode_plus", "batch_encode_plus", "pad") and "tokenizer" in receiver
        else frozenset()
    )


def _types_of_parameter(flow: DataFlow, node: ast.arg) -> frozenset[str]:
    names = flow.names(node.annotation) if node.annotation is not None else ()
    for name in names:
        if fnmatchcase(name, "transformers.*Tokenizer*"):
            return frozenset({"tokenizer"})
        if fnmatchcase(name, "transformers.PreTrainedModel"):
            return frozenset({"model"})
        if fnmatchcase(name, "peft.PeftModel*"):
            return frozenset({"peft-model"})
        if fnmatchcase(name, "datasets.*Dataset*"):
            return frozenset({"dataset"})
    return (
        frozenset({TYPE_OF_PARAMETER_NAME[node.arg]})
        if not names and node.arg in TYPE_OF_PARAMETER_NAME
        else frozenset()
    )


def _types_of_attribute(flow: DataFlow, node: ast.Attribute, depth: int) -> frozenset[str]:
    inner = infer_types(flow, node.value, depth + 1)
    if node.attr in MEMBERS_GIVING_THE_OBJECT:
        return inner
    if "trainer" in inner and node.attr in ("model", "tokenizer", "processing_class"):
        return frozenset({"model" if node.attr == "model" else "tokenizer"})
    if node.attr == "tokenizer" and (
        inner & {"processor"} or (isinstance(node.value, ast.Name) and node.value.id == "self")
    ):
        return frozenset({"tokenizer"})
    return frozenset()
