"""Finds generations that a script repeats for each row of a data set: by `map`, by a loader or
range of one row.

How it works: each `generate` of a model that was loaded knows the frames around it. A function that
`map` or `apply` was handed runs once for each row; so does the body of a loop over a loader whose
batches hold one row, or over `range(0, n, 1)`.

The trade-off: other loops are followed by the data flow of the files, which sees whether a text is
one row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.model_devices_at_use import LOADS
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import LOADERS, PASSES_ON
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame
from truetune.source.symbolic_execution.values_of_run import Instance, Result, Value

MAPPING_METHODS = ("map", "apply", "progress_apply", "progress_map")
CONCURRENT = ("*Executor", "*Pool")
MAX_STEPS = 8
"""Wrappers around a loader"""


class RowGeneration(NamedTuple):
    """A generation that runs once for each row."""

    call: CallEvent
    repeat: ast.AST
    """The call of `map`, or the loop"""


def generations_per_row(module: Module) -> Iterator[RowGeneration]:
    """The generations of a file that run once for each row, each place once.

    Args:
        module: A file that is judged.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.methods("generate"):
            if (
                call.home.path != module.path
                or call.node in seen
                or not _does_loaded_model_generate(call)
            ):
                continue
            repeat = next(
                filter(None, map(_row_loop_of_frame, call.frames("callback", "loop"))), None
            )
            if repeat is not None:
                seen.add(call.node)
                yield RowGeneration(call, repeat)


def _does_loaded_model_generate(call: CallEvent) -> bool:
    """Does a model of transformers generate, that the run loads?"""
    loads = (
        [way.call_that_gave_origin for way in lineages_back_to_origins(call.receiver)]
        if call.receiver is not None
        else []
    )
    return bool(loads) and all(load is not None and load.named(*LOADS) for load in loads)


def _row_loop_of_frame(frame: Frame) -> ast.AST | None:
    """What runs a frame once for each row; None where it runs for several rows, or it is not known."""
    if frame.kind == "loop":
        return (
            frame.node if frame.value is not None and _iterates_single_rows(frame.value) else None
        )
    mapping = frame.given_to
    if mapping is None or not (mapping.method in MAPPING_METHODS or mapping.named("map")):
        return None
    if mapping.is_open or _is_concurrent_pool(mapping.receiver):
        return None
    batched = mapping.keywords.get("batched")
    is_per_row = batched is None or constant_of(batched) is False
    return mapping.node if is_per_row else None


def _is_concurrent_pool(receiver: Value | None) -> bool:
    """Is it a pool of threads or processes, which run at once?"""
    return isinstance(receiver, Result) and receiver.call.named(*CONCURRENT)


def _iterates_single_rows(iterable: Value) -> bool:
    """Does a loop go over a loader whose batches hold one row, or over a range with a written step
    of one?
    """
    for _ in range(MAX_STEPS):
        if not isinstance(iterable, Result):
            return False
        call = iterable.call
        if call.named(*LOADERS):
            return _loader_batches_hold_one_row(call)
        if call.named("range"):
            return len(call.args) == 3 and constant_of(call.args[2], with_defaults=False) == 1
        if not call.args or not (call.named("enumerate", *PASSES_ON) or call.method == "prepare"):
            return False
        iterable = call.args[0]
    return False


def _loader_batches_hold_one_row(loader: CallEvent) -> bool:
    """Is the batch of a loader certainly one row?"""
    if loader.is_open or "batch_sampler" in loader.keywords:
        return False
    size = loader.argument(1, "batch_size")
    # Without a size a loader gives single rows, which a data set of the project may have put together already.
    if size is None:
        return False
    data = loader.argument(0, "dataset")
    return constant_of(size, with_defaults=False) == 1 and not isinstance(data, Instance)
