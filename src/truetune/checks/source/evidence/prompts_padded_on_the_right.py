"""Finds generations from batches of prompts that are certainly padded on the right, in the symbolic
run of a script.

How it works: the ids that a causal model generates from are followed back to what padded them: a
tokenizer, whose side is what was set last, or torch's `pad_sequence`, which pads on the right. Ids
that are turned around on the way are another value. A pipeline pads its batches on the side of its
tokenizer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.causal_decoder_models import (
    MOVING_METHODS,
    is_causal_decoder,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import LOADERS
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Item,
    Result,
    Sequence,
    Slice,
    Value,
)

PAD_SEQUENCE = "torch.nn.utils.rnn.pad_sequence"
PIPELINES = ("transformers.pipeline", "transformers.pipelines.pipeline")
TOKENIZER_LOADS = ("transformers.*Tokenizer*.from_pretrained",)
PADDINGS = (True, "longest", "max_length")
SIDE = "padding_side"
MAX_STEPS = 12
"""Values between a generation and what padded its prompts"""


class PaddedPrompts(NamedTuple):
    """A generation from prompts that are padded on the right."""

    generation: CallEvent
    padding: ast.AST
    """What pads them"""


def prompts_padded_on_the_right(module: Module) -> Iterator[PaddedPrompts]:
    """The generations of a file from prompts that are certainly padded on the right, each place
    once.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for generation in trace.methods("generate", "__call__"):
            if generation.home.path != module.path or generation.node in seen:
                continue
            padding = _right_padding_of_prompts(trace, generation)
            if padding is not None:
                seen.add(generation.node)
                yield PaddedPrompts(generation, padding)


def _right_padding_of_prompts(trace: Trace, generation: CallEvent) -> ast.AST | None:
    """What pads the prompts of a generation on the right; None where nothing certainly does."""
    if generation.method == "__call__":
        return _right_padding_of_pipeline(trace, generation)
    if not is_causal_decoder(generation.receiver):
        return None
    ids = generation.keywords.get("input_ids") or generation.argument(0, "inputs")
    ids = generation.keywords.get("**") if ids is None else ids
    encoding = None if ids is None else call_making_ids(ids)
    if encoding is None or not _pads_several_on_the_right(trace, encoding):
        return None
    return encoding.node


def _pads_several_on_the_right(trace: Trace, encoding: CallEvent) -> bool:
    """Does `pad_sequence` or a tokenizer certainly pad several rows on the right?"""
    if not encoding.named(PAD_SEQUENCE):
        return (
            does_tokenizer_pad_several_rows(encoding)
            and padding_side_at_call(trace, encoding) == "right"
        )
    argument = encoding.argument(3, SIDE)
    side = "right" if argument is None else constant_of(argument)
    return side == "right" and not _may_pad_single_rows(encoding)


def _may_pad_single_rows(padding: CallEvent) -> bool:
    """Does it pad in the collator of a loader that gives one row at a time, or may?"""
    for frame in padding.frames("callback"):
        loader = frame.given_to
        if loader is None or not loader.named(*LOADERS):
            continue
        size = loader.argument(1, "batch_size")
        if size is not None:
            return bool(constant_of(size) == 1)
        return loader.lacks("batch_sampler", 4)
    return False


def call_making_ids(ids: Value, depth: int = 0) -> CallEvent | None:
    """The call that made ids or a batch of them, through moves to a device; None where several may
    have.
    """
    if depth > MAX_STEPS:
        return None
    if isinstance(ids, Choice):
        call_events = [call_making_ids(option, depth + 1) for option in ids.options]
        return call_events[0] if all(one is call_events[0] for one in call_events) else None
    before = _batch_before_ids_access_or_device_move(ids)
    if before is not None:
        return call_making_ids(before, depth + 1)
    return ids.call if isinstance(ids, Result) else None


def _batch_before_ids_access_or_device_move(ids: Value) -> Value | None:
    """The batch that ids are read from, or what was moved to a device; None where they are made."""
    if isinstance(ids, Attribute) and ids.name in ("input_ids", "data"):
        return ids.base
    if isinstance(ids, Item) and constant_of(ids.key) == "input_ids":
        return ids.base
    if isinstance(ids, Result) and ids.call.method in MOVING_METHODS:
        return ids.call.receiver
    return None


def does_tokenizer_pad_several_rows(encoding: CallEvent) -> bool:
    """Does a tokenizer pad a batch of several rows?"""
    receiver = encoding.receiver
    if not isinstance(receiver, Result) or not receiver.call.named(*TOKENIZER_LOADS):
        return False
    if encoding.method == "pad":
        padding, rows = True, encoding.argument(0, "encoded_inputs")
    elif encoding.method == "apply_chat_template":
        padding, rows = (
            constant_of(encoding.keywords.get("padding")),
            encoding.argument(0, "conversation"),
        )
    elif encoding.method in ("__call__", "batch_encode_plus"):
        padding, rows = constant_of(encoding.keywords.get("padding")), encoding.argument(0, "text")
    else:
        return False
    return padding in PADDINGS and rows is not None and _are_several_texts(rows, encoding)


def _are_several_texts(rows: Value, encoding: CallEvent) -> bool:
    """Is it certainly a list of more than one text or chat?"""
    if isinstance(rows, Item):
        return isinstance(rows.key, Slice)
    if not isinstance(rows, Sequence) or not (rows.is_open or len(rows.items) > 1):
        return False
    # One chat is a list too, of turns.
    if encoding.method != "apply_chat_template":
        return True
    return all(isinstance(one, Sequence) for one in rows.items)


def padding_side_at_call(trace: Trace, encoding: CallEvent) -> object:
    """The side that a tokenizer pads on at a call; None where it is not known."""
    argument = encoding.keywords.get(SIDE)
    if argument is not None:
        return constant_of(argument)
    return (
        None
        if encoding.receiver is None
        else _padding_side_last_set(trace, encoding.receiver, encoding)
    )


def _padding_side_last_set(trace: Trace, tokenizer: Value, event: CallEvent) -> object:
    """The side that was last set on a tokenizer before an event; None where it may be another one."""
    if not trace.is_whole or not isinstance(tokenizer, Result):
        return None
    sides = [constant_of(tokenizer.call.keywords.get(SIDE))]
    for store in trace.stores:
        # A store on another object may be one on this tokenizer, by a way that is not followed.
        is_other = isinstance(store.base, Result) and store.base is not tokenizer
        if store.key != SIDE or is_other or store.number > event.number:
            continue
        side = constant_of(store.value)
        is_sure = store.base is tokenizer and not any(store.frames("branch"))
        sides = [side] if is_sure else [*sides, side]
    return sides[0] if all(side == sides[0] for side in sides) else None


def _right_padding_of_pipeline(trace: Trace, call: CallEvent) -> ast.AST | None:
    """The tokenizer of a text-generation pipeline that pads batches on the right; None where none
    does.
    """
    made = call.receiver.call if isinstance(call.receiver, Result) else None
    if made is None or not _makes_text_generation_pipeline(made):
        return None
    size = constant_of(call.keywords.get("batch_size") or made.keywords.get("batch_size"))
    tokenizer = made.keywords.get("tokenizer")
    if not isinstance(size, int) or size < 2 or tokenizer is None:
        return None
    if not isinstance(tokenizer, Result) or not tokenizer.call.named(*TOKENIZER_LOADS):
        return None
    return tokenizer.node if _padding_side_last_set(trace, tokenizer, call) == "right" else None


def _makes_text_generation_pipeline(call_event: CallEvent) -> bool:
    """Does a call make a pipeline that generates text, with all of its arguments known?"""
    if not call_event.named(*PIPELINES) or call_event.is_open:
        return False
    return bool(constant_of(call_event.argument(0, "task")) == "text-generation")
