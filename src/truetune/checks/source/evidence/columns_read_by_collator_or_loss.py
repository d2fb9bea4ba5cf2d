"""Finds which columns of the rows a collator or a loss reads, by the names that the code of the
file spells.

Only names that are spelt in the code of the file are found: a collator that hands its rows on reads
what it likes, and counts as reading nothing.
"""

from __future__ import annotations

import ast

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FORWARD_METHODS = frozenset(
    (
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "position_ids",
        "inputs_embeds",
        "labels",
        "label",
        "label_ids",
        "past_key_values",
        "cache_position",
        "logits_to_keep",
        "num_items_in_batch",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "decoder_input_ids",
        "decoder_attention_mask",
        "decoder_inputs_embeds",
        "encoder_outputs",
        "cross_attn_head_mask",
        "head_mask",
        "pixel_values",
        "pixel_mask",
        "pixel_attention_mask",
        "pixel_values_videos",
        "image_grid_thw",
        "video_grid_thw",
        "image_sizes",
        "input_features",
        "input_values",
        "feature_attention_mask",
        "bbox",
        "start_positions",
        "end_positions",
        "mm_token_type_ids",
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "seq_idx",
        "next_sentence_label",
        "mc_token_ids",
        "mc_labels",
        "global_attention_mask",
        "langs",
        "class_labels",
        "mask_labels",
        "bool_masked_pos",
        "interpolate_pos_encoding",
    )
)
"""What text models of transformers take"""
NodeByKey = dict[str, ast.AST]


def columns_read_by_collator(module: Module, collator: ast.expr) -> NodeByKey:
    """Keys that a collator of the file reads from its rows; nothing where it is not in the file."""
    function = module.flow.function_that_expression_names(collator) or _call_method_of_collator(
        module, collator
    )
    parameters = _parameters_without_self(function)
    if function is None or not parameters:
        return {}
    keys: NodeByKey = {}
    for base, key, node in _key_reads(function):
        # The parameter is the list of rows: only what an element of it is asked for is a column.
        for origin in module.flow.origins(base):
            if not isinstance(base, ast.Name) or not origin.element:
                continue
            if _stands_for_parameter(module, origin.node, parameters[0]):
                keys[key] = node
    return keys


def _call_method_of_collator(module: Module, collator: ast.expr) -> ast.FunctionDef | None:
    """The `__call__` of the class of the file whose object a collator is; None where it is not in
    the file.
    """
    for origin in module.flow.origins(collator):
        if not isinstance(origin.node, ast.Call):
            continue
        for made in module.flow.origins(origin.node.func):
            for item in made.node.body if isinstance(made.node, ast.ClassDef) else ():
                if isinstance(item, ast.FunctionDef) and item.name in ("__call__", "torch_call"):
                    return item
    return None


def columns_read_by_loss(module: Module, trainer: Call) -> NodeByKey:
    """Keys of `inputs` that the `compute_loss` of a trainer class of the file reads."""
    node_by_key: NodeByKey = {}
    for origin in module.flow.origins(trainer.node.func):
        for item in origin.node.body if isinstance(origin.node, ast.ClassDef) else ():
            parameters = (
                _parameters_without_self(item)
                if getattr(item, "name", "") == "compute_loss"
                else []
            )
            if len(parameters) > 1:
                written = {key for base, key in _keys_written(item) if base == parameters[1].arg}
                node_by_key |= {
                    key: node
                    for base, key, node in _key_reads(item)
                    if isinstance(base, ast.Name)
                    and base.id == parameters[1].arg
                    and key not in written
                }
    return node_by_key


def _stands_for_parameter(module: Module, node: ast.AST, parameter: ast.arg) -> bool:
    """Is this the parameter, or a name that stands for it?"""
    return node is parameter or any(
        origin.node is parameter for origin in module.flow.origins(node)
    )


def _parameters_without_self(function: ast.AST | None) -> list[ast.arg]:
    """A function's parameters, without `self`"""
    arguments = getattr(function, "args", None)
    return (
        [a for a in arguments.args if a.arg != "self"]
        if isinstance(arguments, ast.arguments)
        else []
    )


def _key_reads(function: ast.AST) -> list[tuple[ast.expr, str, ast.AST]]:
    """The reads of an entry in a function, as (object, key, node): `x["key"]`, `x.get("key")` and
    `x.pop("key")`.
    """
    key_reads: list[tuple[ast.expr, str, ast.AST]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            base, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("get", "pop")
        ):
            if not node.args:
                continue
            base, key = node.func.value, node.args[0]
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            key_reads.append((base, key.value, node))
    return key_reads


def _keys_written(function: ast.AST) -> list[tuple[str, str]]:
    """The entries that a function writes, each as the name and the key: `row["labels"] = ...`"""
    return [
        (node.value.id, node.slice.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ]
