"""Reads the layer numbers that a script names in module names, patterns and lists, and how many
layers its model has.

Blocks are numbered from 0. A number from a model with more of them (31 of a model of 32) chooses
nothing in one of 28, and nothing says so: a test of names is false, and a list of names has no
match.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    literal_or_default_text_of_expression,
)
from truetune.checks.source.evidence.script_start_commands_and_reserved_gpus import command_files_in
from truetune.errors import TruetuneError
from truetune.memory.published_model_shapes import published_config
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.source.parsed_source_file import Module

LAYER_IN_NAME = re.compile(r"(?:^|[._ ])(?:layers?|h|blocks?)[._](\d{1,3})(?!\d)")
"""`model.layers.31.self_attn`, `transformer.h.11.`"""
OTHER_STACK = re.compile(r"vision|visual|audio|encoder|decoder\.block|expert|draft", re.I)
"""Parts of names of other stacks than the blocks of a causal language model"""
PATTERN_SIGN = re.compile(r"[\\^$*+?|()\[\]{}]")
COUNT_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
BLOCKS = (
    "model.layers.{}",
    "transformer.h.{}",
    "gpt_neox.layers.{}",
    "base_model.model.model.layers.{}",
)
PARTS = (
    ".self_attn.q_proj.weight",
    ".mlp.down_proj.weight",
    ".input_layernorm.weight",
    ".self_attn.q_proj",
    ".mlp.down_proj",
    ".attn.c_attn.weight",
    ".attention.query_key_value.weight",
    "",
)
"""Names that a pattern is tried on"""
MAX_LAYERS = 130
"""Numbers that a pattern is tried with: the largest dense models have 126 layers (Llama 3.1 405B)"""
MAX_TEXTS = 300
"""Texts that a list may stand for. Chosen, not measured: two for each layer of the largest models"""
COLLECTIONS = (list, tuple, set, frozenset)
LISTING_FUNCTIONS = ("list", "tuple", "set", "sorted", "frozenset")
"""Functions of Python whose result has the members of what they are given"""
MAX_DEPTH = 6
"""Lists, names and wrappers inside of one another. Chosen, not measured"""
HUB_NAME = re.compile(r"[\w.-]{1,60}/[\w.-]{1,90}")


def layer_count_of_model(name: str | None) -> int | None:
    """How many blocks the model of that name has; None where neither its config.json nor a
    published shape is known.
    """
    if not name:
        return None
    config = _local_config(name) or published_config(name) or {}
    count = first_positive_text_model_setting(config, *COUNT_KEYS)
    return count if count is not None and count < MAX_LAYERS else None


def _local_config(name: str) -> dict[str, Any]:
    """config.json of a model whose folder is here."""
    try:
        config = read_json(find_tokenizer_folder(name) / "config.json", MODEL_FILE)
    except (TruetuneError, OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def jobs_name_model_of_another_depth(script: Path, layers: int) -> bool:
    """Does a file of commands beside a script name a model with another number of layers?"""
    jobs = command_files_in(script.parent)
    names = {name for job in jobs for name in HUB_NAME.findall(job.text)}
    return any((layer_count_of_published(name) or layers) != layers for name in names)


def layer_count_of_published(name: str) -> int | None:
    """The number of blocks of a published model by its name alone; None where it is not known."""
    config = published_config(name)
    return config["num_hidden_layers"] if config is not None else None


def layer_numbers_in_texts(texts: Iterable[str], layers: int) -> list[int]:
    """The numbers of layers that texts name: those in plain names, and those that only a pattern's
    text allows.
    """
    numbers: set[int] = set()
    for text in texts:
        if OTHER_STACK.search(text):
            continue
        plain = text.replace("\\.", ".")
        if PATTERN_SIGN.search(plain.strip("^$")):
            numbers |= _layer_numbers_of_pattern(text, layers)
        else:
            numbers |= {int(number) for number in LAYER_IN_NAME.findall(plain.strip("^$"))}
    return sorted(numbers)


def _layer_numbers_of_pattern(pattern: str, layers: int) -> set[int]:
    """The numbers of layers whose names match a pattern.

    A pattern that also fits a layer of the model says nothing by what else it would fit:
    `layers\\.2\\d` is written for the twenties, and `.*` for all.
    """
    tried = [
        (number, block.format(number) + part)
        for number in range(MAX_LAYERS)
        for block in BLOCKS
        for part in PARTS
    ]
    try:
        fits = pc.match_substring_regex(pa.array([name for _, name in tried], pa.string()), pattern)
    except pa.ArrowException:
        return set()  # it looks ahead or back, or is no pattern
    fitting = {
        number for (number, _), is_fit in zip(tried, fits.to_pylist(), strict=True) if is_fit
    }
    inside = {number for number in fitting if number < layers}
    return inside or fitting


def possible_texts_of_expression(
    module: Module, node: ast.expr | None, depth: int = 0
) -> list[str]:
    """The texts that an expression stands for: one, those of a list, those that a comprehension
    over numbers makes.
    """
    if node is None or depth > MAX_DEPTH:
        return []
    value = module.flow.value(node)
    if isinstance(value, str):
        return [value]
    if isinstance(value, COLLECTIONS):
        return [one for one in value if isinstance(one, str)][:MAX_TEXTS]
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return list(_texts_of_comprehension(module, node))[:MAX_TEXTS]
    parts = _elements_or_sum_sides(node)
    if parts is None:
        parts = _listed_or_assigned_expressions(module, node)
    return [
        text for part in parts for text in possible_texts_of_expression(module, part, depth + 1)
    ]


def _listed_or_assigned_expressions(module: Module, node: ast.expr) -> list[ast.expr]:
    """What `list(...)` or `sorted(...)` is given, else what a name was given."""
    listed = _argument_of_list_or_sorted(node) if isinstance(node, ast.Call) else None
    return _value_or_iterable_of_name(module, node) if listed is None else listed


def _elements_or_sum_sides(node: ast.expr) -> list[ast.expr] | None:
    """The elements of a list that is written out, and the two sides of `one + other`; None for any
    other expression.
    """
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [part.value if isinstance(part, ast.Starred) else part for part in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [node.left, node.right]
    return None


def _argument_of_list_or_sorted(call: ast.Call) -> list[ast.expr] | None:
    """What `list(...)` or `sorted(...)` lists, and nothing for another function; None for any other
    call.
    """
    if not isinstance(call.func, ast.Name) or len(call.args) != 1:
        return None
    return call.args[:1] if call.func.id in LISTING_FUNCTIONS else []


def _value_or_iterable_of_name(module: Module, node: ast.expr) -> list[ast.expr]:
    """The one expression that a name was given, or the list that a loop over it goes through; else
    nothing.
    """
    origins = module.flow.origins(node)
    given = origins[0].node
    if len(origins) != 1 or origins[0].path or given is node or not isinstance(given, ast.expr):
        return []
    return [given]


def _texts_of_comprehension(
    module: Module, node: ast.ListComp | ast.GeneratorExp | ast.SetComp
) -> Iterator[str]:
    """The texts of a comprehension over written numbers that nothing filters: `f"layers.{i}." for i
    in range(28, 32)`.
    """
    if len(node.generators) != 1 or node.generators[0].ifs:
        return
    (loop,) = node.generators
    if not isinstance(loop.target, ast.Name):
        return
    for number in whole_numbers_of_list(module, loop.iter):
        text = _text_with_number(node.elt, loop.target.id, number)
        if text is not None:
            yield text


def _text_with_number(node: ast.expr, name: str, number: int) -> str | None:
    """The text of an expression in which a name stands for a number: an f-string, `%`, `.format` or
    `+ str(i)`.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return _text_of_parts_with_number(node.values, name, number)
    if isinstance(node, ast.FormattedValue):
        return str(number) if _is_this_name(node.value, name) and node.format_spec is None else None
    if isinstance(node, ast.BinOp):
        return _text_of_operation_with_number(node, name, number)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _text_of_call_with_number(node, name, number)
    return None


def _text_of_operation_with_number(node: ast.BinOp, name: str, number: int) -> str | None:
    """The text of `"layers." + str(i)` and of `"layers.%d" % i`; None for any other operation."""
    if isinstance(node.op, ast.Add):
        return _text_of_parts_with_number([node.left, node.right], name, number)
    is_filled = isinstance(node.op, ast.Mod)
    return _filled_template(node.left, node.right, name, "%d", number) if is_filled else None


def _text_of_call_with_number(call: ast.Call, name: str, number: int) -> str | None:
    """The text of `"layers.{}".format(i)` and of `str(i)`; None for any other call."""
    (argument,) = call.args
    if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
        return _filled_template(call.func.value, argument, name, "{}", number)
    is_text = _is_this_name(call.func, "str") and _is_this_name(argument, name)
    return str(number) if is_text else None


def _text_of_parts_with_number(parts: list[ast.expr], name: str, number: int) -> str | None:
    """The joined text of several parts in which a name stands for a number; None where one part is
    not known.
    """
    texts = [_text_with_number(part, name, number) for part in parts]
    known = [text for text in texts if text is not None]
    return "".join(known) if len(known) == len(texts) else None


def _filled_template(
    template: ast.expr, value: ast.expr, name: str, place: str, number: int
) -> str | None:
    """A constant template with the number in its one place."""
    text = template.value if isinstance(template, ast.Constant) else None
    if not isinstance(text, str) or not _is_this_name(value, name):
        return None
    return text.replace("%s", place).replace(place, str(number))


def _is_this_name(node: ast.expr, name: str) -> bool:
    """Is an expression this name?"""
    return isinstance(node, ast.Name) and node.id == name


def whole_numbers_of_list(module: Module, node: ast.expr | None, depth: int = 0) -> list[int]:
    """The whole numbers of a list, of `range(28, 32)` or of `list(range(...))`; empty where they
    are not written.
    """
    if node is None or depth > MAX_DEPTH:
        return []
    value = module.flow.value(node)
    if type(value) is int:
        return [value]
    if isinstance(value, COLLECTIONS):
        return [one for one in value if type(one) is int][:MAX_TEXTS]
    if isinstance(node, ast.Call) and _is_this_name(node.func, "range"):
        return _numbers_of_range(module, node)
    parts = _listed_or_assigned_expressions(module, node)
    return [number for part in parts for number in whole_numbers_of_list(module, part, depth + 1)]


def _numbers_of_range(module: Module, node: ast.Call) -> list[int]:
    """The numbers of a range whose ends are written."""
    ends = [module.flow.value(one) for one in node.args]
    whole = [end for end in ends if type(end) is int]
    if len(whole) != len(ends) or not 1 <= len(ends) <= 3 or (len(ends) == 3 and ends[2] == 0):
        return []
    return list(range(*whole)[:MAX_TEXTS])


def is_model_name_only_default(module: Module, model: ast.expr) -> bool:
    """Is a model's name only the default of a variable or option, so that a launch may give
    another?
    """
    return (
        not isinstance(module.flow.value(model), str)
        and literal_or_default_text_of_expression(module, model) is not None
    )


def describe_numbers(numbers: list[int]) -> str:
    """Numbers in words, with runs of them as a range: `28 to 31`, `3`, `28, 30 and 31`."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
