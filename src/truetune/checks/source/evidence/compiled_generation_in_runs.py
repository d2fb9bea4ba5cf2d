"""Generations by a compiled model whose prompts have other lengths each time, in the symbolic run of a script.

How it works: what makes shapes fixed (`torch.compile(dynamic=False)`, a static cache) is found for the model that
generates; the ids are followed back to the tokenizer that made them, which pads to one length or does not.

The trade-off: ids that lead to no tokenizer are not judged, and neither is a generation outside of a loop, which runs
once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.padded_prompts_in_runs import encoding_of_ids
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.kept_traces import traces_of
from truetune.source.symbolic_execution.trace_back_to_load import lineages
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Attribute, Result, Value

STATIC_CACHES = ("static", "offloaded_static")
ENCODERS = ("__call__", "apply_chat_template", "batch_encode_plus", "encode", "encode_plus", "pad")
REPEATING = ("loop", "comprehension")
CACHE = "cache_implementation"


class Recompiled(NamedTuple):
    """A generation that compiles again for prompts of other lengths."""

    generation: CallEvent
    encoding: CallEvent
    fixed_by: ast.AST
    is_cache: bool
    """Is it a static cache that makes shapes fixed?"""


def recompiled_generations(module: Module) -> Iterator[Recompiled]:
    """The generations of a file that compile again for other lengths, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of(module):
        for generation in trace.methods("generate"):
            if generation.home.path != module.path or generation.node in seen:
                continue
            if not any(generation.frames(*REPEATING)):
                continue
            encoding = _varying_encoding(generation)
            fixed = None if encoding is None else _fixed_shapes(trace, generation)
            if encoding is not None and fixed is not None:
                seen.add(generation.node)
                yield Recompiled(generation, encoding, *fixed)


def _varying_encoding(generation: CallEvent) -> CallEvent | None:
    """The tokenizer's call that makes the ids, where their length differs; None for one length, or an unknown one."""
    ids = generation.keywords.get("input_ids") or generation.argument(0, "inputs")
    ids = generation.keywords.get("**") if ids is None else ids
    encoding = None if ids is None else encoding_of_ids(ids)
    if encoding is None or encoding.method not in ENCODERS or encoding.is_open:
        return None
    if not any(encoding.frames(*REPEATING)):
        return None
    multiple = encoding.keywords.get("pad_to_multiple_of")
    padding = encoding.keywords.get("padding")
    plain = None if padding is None else constant_of(padding)
    is_plain = plain in (None, True, False, "longest", "do_not_pad")
    return encoding if multiple is None and is_plain else None


def _fixed_shapes(trace: Trace, generation: CallEvent) -> tuple[ast.AST, bool] | None:
    """What makes shapes fixed for the model of a generation, and whether it is a cache; None where nothing does."""
    origins = _origins(generation.receiver)
    for call in trace.all_calls:
        if call.number < generation.number and _compiles_for_one_shape(call):
            if _origins(_compiled(call)) & origins:
                return call.node, False
    given = generation.keywords.get(CACHE)
    if given is not None and constant_of(given) in STATIC_CACHES:
        return generation.node, True
    settings = generation.keywords.get("generation_config")
    if isinstance(settings, Result) and CACHE in settings.call.keywords:
        if constant_of(settings.call.keywords[CACHE]) in STATIC_CACHES:
            return settings.call.node, True
    for store in trace.stores:
        if store.key == CACHE and store.number < generation.number:
            base = store.base.base if isinstance(store.base, Attribute) else store.base
            if constant_of(store.value) in STATIC_CACHES and _origins(base) & origins:
                return store.node, True
    return None


def _compiles_for_one_shape(call: CallEvent) -> bool:
    """`torch.compile(model, dynamic=False)`, and the method."""
    if not call.named("torch.compile") and call.method != "compile":
        return False
    dynamic = call.keywords.get("dynamic")
    return dynamic is not None and constant_of(dynamic) is False


def _compiled(call: CallEvent) -> Value | None:
    """The model, or method of a model, that a call compiles."""
    if call.method == "compile":
        return call.receiver
    given = call.argument(0, "model")
    return given.base if isinstance(given, Attribute) and given.name == "forward" else given


def _origins(value: Value | None) -> set[int]:
    """The identities of what a model was made by."""
    return set() if value is None else {id(way.origin) for way in lineages(value)}
