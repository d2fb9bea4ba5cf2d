"""Finds statements that look like a step of a training and do nothing.

How it works: three kinds are told by their form. A method that is named and not called. An attribute that no library
reads, since its name is one letter off one that is read. And `requires_grad` that is set on a module: only tensors
have it, and PyTorch keeps any other attribute of a module without a word.

The trade-off: an attribute that the file reads anywhere is left alone, and a module is known by the names that models
of transformers give to their parts, or by the loop over layers that it comes from.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.names_read_or_spelled_in_files import (
    is_name_read_or_spelled,
)
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

METHODS = frozenset(
    (
        "train",
        "eval",
        "step",
        "zero_grad",
        "backward",
        "cuda",
        "half",
        "bfloat16",
        "save_pretrained",
        "save_model",
        "push_to_hub",
        "merge_and_unload",
        "gradient_checkpointing_enable",
        "enable_input_require_grads",
        "requires_grad_",
        "resize_token_embeddings",
        "tie_weights",
        "print_trainable_parameters",
        "wait_for_everyone",
        "empty_cache",
    )
)
"""Methods that are called for what they do"""
REQUIRES_GRAD = "requires_grad"
MISSPELLED = re.compile(r"^require[sd]?_?grad(s|ient|ients)?_?$", re.I)
KERAS = re.compile(r"^\s*(import|from)\s+(keras|tensorflow)\b", re.M)
MODULE_NAMES = re.compile(
    r"^(model|base_model|language_model|text_model|vision_model|vision_tower|visual|encoder|decoder|transformer|backbone"
    r"|bert|roberta|deberta|distilbert|gpt_neox|lm_head|classifier|score|head|embed_tokens|wte|wpe|embeddings|layers|h"
    r"|layer|blocks|self_attn|mlp|pooler|adapter|projector|multi_modal_projector)$"
)
"""Names that models give to their modules"""
NAMES_A_MODEL = re.compile(
    r"^self$|model|net|policy|actor|critic|student|teacher|encoder|decoder|bert|transformer|backbone|llm|gpt",
    re.I,
)
"""Names of objects that have such modules"""
MAKES_TENSORS = frozenset(
    ("Parameter", "tensor", "zeros", "ones", "randn", "rand", "empty", "full")
)
MODULE_LISTS = ("children", "modules", "named_children", "named_modules")
TOKENIZER_ATTRIBUTES = (
    "pad_token",
    "pad_token_id",
    "eos_token",
    "bos_token",
    "padding_side",
    "truncation_side",
    "chat_template",
    "model_max_length",
    "add_bos_token",
    "add_eos_token",
)
CONFIG_ATTRIBUTES = (
    "use_cache",
    "pad_token_id",
    "eos_token_id",
    "bos_token_id",
    "output_hidden_states",
    "output_attentions",
    "problem_type",
    "num_labels",
    "pretraining_tp",
    "decoder_start_token_id",
    "forced_bos_token_id",
)
MIN_LIKENESS = 0.87
"""Likeness of two names, by difflib, from which one is taken for the other misspelled: one letter of eight"""
Kind = Literal["call", "name", "module"]


class StatementWithoutEffect(NamedTuple):
    """A statement that does nothing."""

    statement: ast.stmt
    kind: Kind
    written: str
    meant: str


def statements_without_effect(module: Module) -> Iterator[StatementWithoutEffect]:
    """The statements of a file that do nothing, each once.

    Args:
        module: A file that is judged.

    Yields:
        Methods that are not called, misspelled attributes, `requires_grad` of modules.
    """
    yield from _methods_not_called(module)
    for statement, target in attribute_assignments_not_on_self(module):
        found = _misspelled_attribute(module, target) or _requires_grad_set_on_module(
            module, target
        )
        if found is not None:
            yield StatementWithoutEffect(statement, *found)


def _methods_not_called(module: Module) -> Iterator[StatementWithoutEffect]:
    """The statements that name a method and do not call it."""
    for statement in module.nodes(ast.Expr):
        named = statement.value
        if isinstance(named, ast.Attribute) and named.attr in METHODS:
            if isinstance(named.value, ast.Name | ast.Attribute):
                written = ast.unparse(named)
                yield StatementWithoutEffect(statement, "call", written, f"{written}()")


def attribute_assignments_not_on_self(module: Module) -> Iterator[tuple[ast.Assign, ast.Attribute]]:
    """The assignments to one attribute of an object that is not `self`."""
    for statement in module.nodes(ast.Assign):
        target = statement.targets[0]
        if len(statement.targets) == 1 and isinstance(target, ast.Attribute):
            if not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")):
                yield statement, target


def _misspelled_attribute(module: Module, target: ast.Attribute) -> tuple[Kind, str, str] | None:
    """An attribute whose name is a little off one that a library reads."""
    meant = _nearest_attribute(module, target)
    if meant is None or is_name_read_or_spelled(module, target.attr):
        return None
    return "name", target.attr, meant


def _nearest_attribute(module: Module, target: ast.Attribute) -> str | None:
    """The attribute that is meant by a misspelled one; None where it is spelled right, or means another."""
    name = target.attr
    if name != REQUIRES_GRAD and MISSPELLED.match(name):
        # `requires_grad_ = False` replaces the method, and freezes nothing.
        return REQUIRES_GRAD
    known: tuple[str, ...] = ()
    if isinstance(target.value, ast.Attribute) and target.value.attr == "config":
        known = CONFIG_ATTRIBUTES
    elif "tokenizer" in module.flow.types(target.value):
        known = TOKENIZER_ATTRIBUTES
    if name in known or name in (*CONFIG_ATTRIBUTES, *TOKENIZER_ATTRIBUTES):
        return None
    return next(iter(difflib.get_close_matches(name, known, 1, MIN_LIKENESS)), None)


def _requires_grad_set_on_module(
    module: Module, target: ast.Attribute
) -> tuple[Kind, str, str] | None:
    """`requires_grad` that is set on a module."""
    if target.attr != REQUIRES_GRAD or KERAS.search(module.text):
        return None
    owner = target.value
    if _is_neural_network_module(module, owner):
        return "module", ast.unparse(target), f"{ast.unparse(owner)}.requires_grad_(...)"
    return None


def _is_neural_network_module(module: Module, owner: ast.expr) -> bool:
    """Is an object surely a module of a model, and no tensor?"""
    if isinstance(owner, ast.Subscript):
        return _is_part_of_model(module, owner.value)
    if isinstance(owner, ast.Attribute):
        return _is_part_of_model(module, owner)
    if not isinstance(owner, ast.Name):
        return False
    if "model" in module.flow.types(owner):
        return True
    bindings = module.scopes.bindings_that_reach(owner)
    return bool(bindings) and all(
        _loop_gives_neural_network_modules(binding.value) for binding in bindings
    )


def _is_part_of_model(module: Module, owner: ast.expr) -> bool:
    """Is it `model.lm_head`, by its name, and no tensor that the file makes under that name?"""
    if not isinstance(owner, ast.Attribute) or not MODULE_NAMES.match(owner.attr):
        return False
    # `self.head = nn.Parameter(...)`; and `prompt.embeddings` of an object that is no model may be one too.
    is_tensor = any(
        isinstance(target, ast.Attribute) and target.attr == owner.attr
        for node in module.nodes(ast.Assign)
        if isinstance(node.value, ast.Call) and last_name_of_called(node.value) in MAKES_TENSORS
        for target in node.targets
    )
    root = ast.unparse(owner.value).partition(".")[0]
    return not is_tensor and NAMES_A_MODEL.search(root) is not None


def _loop_gives_neural_network_modules(iterated: ast.expr | None) -> bool:
    """Does a loop over an expression give modules: `model.layers[:4]`, `model.children()`?"""
    if isinstance(iterated, ast.Call):
        name = last_name_of_called(iterated)
        if name in ("list", "reversed", "enumerate") and iterated.args:
            return _loop_gives_neural_network_modules(iterated.args[0])
        return name in MODULE_LISTS
    if isinstance(iterated, ast.Subscript):
        return isinstance(iterated.slice, ast.Slice) and _loop_gives_neural_network_modules(
            iterated.value
        )
    return isinstance(iterated, ast.Attribute) and iterated.attr in (
        "layers",
        "layer",
        "blocks",
        "h",
    )
