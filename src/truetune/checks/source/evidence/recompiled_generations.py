"""Finds generations by a compiled model that compile again because their prompts have other lengths
each time.

How it works: what makes shapes fixed (`torch.compile(dynamic=False)`, a static cache) is found for
the model that generates; the ids are followed back to the tokenizer that made them, which pads to
one length or does not.

The trade-off: ids that lead to no tokenizer are not judged, and neither is a generation outside of
a loop, which runs once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.prompts_padded_on_the_right import call_making_ids
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Attribute, Result, Value

STATIC_CACHES = ("static", "offloaded_static")
ENCODERS = ("__call__", "apply_chat_template", "batch_encode_plus", "encode", "encode_plus", "pad")
REPEATING = ("loop", "comprehension")
CACHE = "cache_implementation"


class RecompiledGeneration(NamedTuple):
    """A generation that compiles again for prompts of other lengths."""

    generation: CallEvent
    encoding: CallEvent
    fixed_by: ast.AST
    is_cache: bool
    """Is it a static cache that makes shapes fixed?"""


def recompiled_generations(module: Module) -> Iterator[RecompiledGeneration]:
    """The generations of a file that compile again for other lengths, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for generation in trace.methods("generate"):
            if generation.home.path != module.path or generation.node in seen:
                continue
            if not any(generation.frames(*REPEATING)):
                continue
            encoding = _encoding_of_varying_length(generation)
            fixed = None if encoding is None else _fixed_shape_cause_and_is_cache(trace, generation)
            if encoding is not None and fixed is not None:
                seen.add(generation.node)
                yield RecompiledGeneration(generation, encoding, *fixed)


def _encoding_of_varying_length(generation: CallEvent) -> CallEvent | None:
    """The tokenizer's call that makes ids of differing lengths for a generation; None for one
    length, or an unknown one.
    """
    ids = generation.keywords.get("input_ids") or generation.argument(0, "inputs")
    ids = generation.keywords.get("**") if ids is None else ids
    encoding = None if ids is None else call_making_ids(ids)
    if encoding is None or encoding.method not in ENCODERS or encoding.is_open:
        return None
    if not any(encoding.frames(*REPEATING)):
        return None
    multiple = encoding.keywords.get("pad_to_multiple_of")
    padding = encoding.keywords.get("padding")
    plain = None if padding is None else constant_of(padding)
    is_plain = plain in (None, True, False, "longest", "do_not_pad")
    return encoding if multiple is None and is_plain else None


def _fixed_shape_cause_and_is_cache(
    trace: Trace, generation: CallEvent
) -> tuple[ast.AST, bool] | None:
    """What makes shapes fixed for the model of a generation, and whether it is a cache; None where
    nothing does.
    """
    origins = _identities_of_model_origins(generation.receiver)
    for call in trace.all_calls:
        if call.number < generation.number and _compiles_for_one_shape(call):
            if _identities_of_model_origins(_compiled_model(call)) & origins:
                return call.node, False
    static_cache = _call_giving_static_cache(generation) or _assignment_setting_static_cache(
        trace, generation, origins
    )
    return None if static_cache is None else (static_cache, True)


def _call_giving_static_cache(generation: CallEvent) -> ast.AST | None:
    """The call that gives a generation a static cache: itself, or that of its config; else None."""
    argument = generation.keywords.get(CACHE)
    if argument is not None and constant_of(argument) in STATIC_CACHES:
        return generation.node
    settings = generation.keywords.get("generation_config")
    if isinstance(settings, Result) and CACHE in settings.call.keywords:
        if constant_of(settings.call.keywords[CACHE]) in STATIC_CACHES:
            return settings.call.node
    return None


def _assignment_setting_static_cache(
    trace: Trace, generation: CallEvent, origins: set[int]
) -> ast.AST | None:
    """The assignment before a generation that sets a static cache on its model; None without one."""
    for store in trace.stores:
        if store.key != CACHE or store.number >= generation.number:
            continue
        base = store.base.base if isinstance(store.base, Attribute) else store.base
        if (
            constant_of(store.value) in STATIC_CACHES
            and _identities_of_model_origins(base) & origins
        ):
            return store.node
    return None


def _compiles_for_one_shape(call: CallEvent) -> bool:
    """Does a call compile for one shape: `torch.compile(model, dynamic=False)`, or the method?"""
    if not call.named("torch.compile") and call.method != "compile":
        return False
    dynamic = call.keywords.get("dynamic")
    return dynamic is not None and constant_of(dynamic) is False


def _compiled_model(call: CallEvent) -> Value | None:
    """The model, or method of a model, that a call compiles."""
    if call.method == "compile":
        return call.receiver
    model_argument = call.argument(0, "model")
    return (
        model_argument.base
        if isinstance(model_argument, Attribute) and model_argument.name == "forward"
        else model_argument
    )


def _identities_of_model_origins(value: Value | None) -> set[int]:
    """The identities of what a model was made by."""
    return set() if value is None else {id(way.origin) for way in lineages_back_to_origins(value)}
