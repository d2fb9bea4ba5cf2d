"""Finds models that are loaded with `use_cache=False`, as trainings do, and then generate with that
setting.

How it works: transformers hands the argument on to the generation config that it reads beside the
weights, so that `generate` keeps no cache until someone switches it on; `model.config.use_cache`
alone does not (5.23, tried).

The trade-off: any later `use_cache = True` counts as such a switch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.model_devices_at_use import LOADS
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import UNPACKED
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Result, Unknown, Value

USE_CACHE = "use_cache"
ENCODING_METHODS = ("__call__", "to", "apply_chat_template", "pad")
"""Methods whose result holds the inputs of a model"""
INPUTS_WORD = re.compile(r"input|enc|batch|ids", re.I)
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")


class CacheOff(NamedTuple):
    """A generation without a cache, and the load that switched it off."""

    generate: CallEvent
    load: CallEvent


def generations_with_cache_off_at_load(module: Module) -> Iterator[CacheOff]:
    """The generations of a file whose model was loaded without its cache, each place once.

    Args:
        module: A file that is judged.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if _switches_cache_on(trace):
            continue
        for call in trace.methods("generate"):
            is_here = call.home.path == module.path and call.node not in seen
            if not is_here or _may_get_cache_setting(call):
                continue
            load = None if USE_CACHE in call.keywords else _load_without_cache(call.receiver, 0)
            if load is not None:
                seen.add(call.node)
                yield CacheOff(call, load)


def _may_get_cache_setting(call: CallEvent) -> bool:
    """May a generation be given settings that switch its cache on: a config, or `**settings`?"""
    spread = call.keywords.get(UNPACKED)
    if spread is None:
        return call.is_open or "generation_config" in call.keywords
    if isinstance(spread, Result):
        return spread.call.method not in ENCODING_METHODS
    return not isinstance(spread, Unknown) or INPUTS_WORD.search(spread.why) is None


def _switches_cache_on(trace: Trace) -> bool:
    """Does a run set `use_cache` to anything but False?"""
    return any(
        event.key == USE_CACHE and constant_of(event.value) is not False for event in trace.stores
    )


def _load_without_cache(model: Value | None, depth: int) -> CallEvent | None:
    """The load of a model with `use_cache=False`, also through a trainer; None where it may have
    its cache.
    """
    if model is None or depth > 1:
        return None
    loads = [
        _cacheless_load_of(way.call_that_gave_origin, depth)
        for way in lineages_back_to_origins(model)
    ]
    return loads[0] if all(loads) else None


def _cacheless_load_of(load: CallEvent | None, depth: int) -> CallEvent | None:
    """The load that one way leads to, where it switches the cache off."""
    if load is None:
        return None
    if load.named(*TRAINERS):
        return _load_without_cache(load.argument(0, "model"), depth + 1)
    is_off = load.named(*LOADS) and constant_of(load.keywords.get(USE_CACHE)) is False
    return load if is_off else None
