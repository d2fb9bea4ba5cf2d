"""Finds losses that a script computes itself of a causal model's logits, and by how many tokens its
labels are ahead of the ids.

How it works: the logits that a cross-entropy or a `gather` of log-probabilities is given are
followed back to the pass of a causal model, whose ids are known; then ids, labels and logits are
compared by the places of their tokens (`token_offsets_from_source_arrays.py`). The logits at one place are for
the token behind it, so labels have to be one ahead.

The trade-off: what the labels of a batch are must be seen: made of the ids in these files, by a
collator that copies them, or given to the model's own loss as well, whose value is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.batch_field_sources import (
    IDS,
    LABELS,
    BatchField,
    batch_field_read,
    trainer_of_hook,
)
from truetune.checks.source.evidence.causal_decoder_models import is_causal_decoder
from truetune.checks.source.evidence.token_offsets_from_source_arrays import (
    IDS_WAY,
    LABELS_WAY,
    MAX_DEPTH,
    TokenLayouts,
    tokens_ahead,
)
from truetune.checks.source.evidence.token_positions_in_arrays import (
    KEEPING_METHODS,
    START,
    Layout,
    Segment,
    TokenPosition,
    layout_after_index,
    length_of_source,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Instance,
    Item,
    Operation,
    Parameter,
    Result,
    Value,
)

LOSS_FUNCTIONS = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
LOSS_CLASSES = ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss")
LOGPROB_FUNCTIONS = ("trl.*selective_log_softmax", "trl.*logprobs_from_logits")
SOFTMAXES = ("torch.log_softmax", "torch.softmax", "torch.nn.functional.*softmax")
SOFTMAX_METHODS = frozenset(("log_softmax", "softmax"))
SCALING = ("/", "*", "-")
"""Operators whose result has the logits of their first operand, at the same places"""
LOGITS_SOURCE = "logits"
"""What stands for a place of the logits in a layout"""


class ModelPass(NamedTuple):
    """What a causal model was given for its logits."""

    output: Value
    ids: Layout | None
    given_labels: Layout | None
    """The labels that it was given too; None where it was given none"""
    has_own_loss: bool
    """The loss that the model computes of them is used"""


class Logits(NamedTuple):
    """Logits of a causal model, or a part of them."""

    model_pass: ModelPass
    segment: Segment


class OwnLoss(NamedTuple):
    """A loss of the project's own on a causal model's logits."""

    call: CallEvent
    ahead: int
    """By how many places the label is behind the token that the logits are given: 1 is right"""


def own_losses_with_known_label_shift(module: Module) -> Iterator[OwnLoss]:
    """The losses of a file whose labels and logits are known by their places, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        search = OwnLossSearch(trace)
        for call in trace.all_calls:
            if call.home.path != module.path or call.node in seen or call.is_in_later_loop_pass:
                continue
            ahead = search.label_shift_of_loss(call)
            if ahead is not None:
                seen.add(call.node)
                yield OwnLoss(call, ahead)


class OwnLossSearch:
    """The losses of one run."""

    def __init__(self, trace: Trace) -> None:
        self._places = TokenLayouts(trace)

    def label_shift_of_loss(self, call: CallEvent) -> int | None:
        """By how many tokens a loss looks ahead; None for any other call, and where it is not
        known.
        """
        given = _logits_and_labels_compared(call)
        if given is None:
            return None
        logits = self.logits_of(given[0])
        if logits is None:
            return None
        return self.label_shift_against_logits(logits, given[1])

    def label_shift_against_logits(self, logits: Logits, labels: Value) -> int | None:
        """By how many tokens labels are ahead of the ids whose logits they are compared with."""
        layout = self._places.layout_of(labels, LABELS_WAY)
        if layout is None:
            return None
        ids = logits.model_pass.ids
        ahead = self._label_shift_between_layouts(ids, layout, logits.segment)
        if ahead is None and logits.model_pass.has_own_loss:
            ahead = self._label_shift_between_layouts(
                logits.model_pass.given_labels, layout, logits.segment
            )
        return ahead

    def _label_shift_between_layouts(
        self, ids: Layout | None, labels: Layout, logits: Segment
    ) -> int | None:
        """How far labels are ahead of the ids, beside logits of which some were cut away."""
        place = None if ids is None else _place_in_rows(ids, logits.place)
        if ids is None or place is None:
            return None
        beside = tuple(
            Segment(one.source, one.place.plus(place), (*one.picks, *logits.picks)) for one in ids
        )
        return tokens_ahead(beside, labels)

    def logits_of(self, value: Value, depth: int = 0) -> Logits | None:
        """The pass of a causal model that logits or log-probabilities are of; None where they may
        be anything else.
        """
        if depth > MAX_DEPTH:
            return None
        if isinstance(value, Choice):
            logits_of_options = [self.logits_of(one, depth + 1) for one in value.options]
            return (
                logits_of_options[0]
                if all(one == logits_of_options[0] for one in logits_of_options)
                else None
            )
        output = _model_output_holding_logits(value)
        model_pass = None if output is None else self._model_pass_of(output)
        if model_pass is not None:
            return Logits(model_pass, Segment(LOGITS_SOURCE, START))
        if isinstance(value, Item):
            return self._part_of_logits(value, depth)
        inside = _logits_before_cast_or_softmax(value)
        return None if inside is None else self.logits_of(inside, depth + 1)

    def _part_of_logits(self, item: Item, depth: int) -> Logits | None:
        """The logits that an index takes."""
        whole = self.logits_of(item.base, depth + 1)
        segments = None if whole is None else layout_after_index((whole.segment,), item.key)
        return None if whole is None or segments is None else Logits(whole.model_pass, segments[0])

    def _model_pass_of(self, output: Value) -> ModelPass | None:
        """The pass of a causal model that gave an output; None where it is none."""
        if isinstance(output, Parameter):
            return self._model_pass_of_trainer(output)
        if not isinstance(output, Result) or output.call.method not in ("__call__", "forward"):
            return None
        call = output.call
        if not is_causal_model(call.receiver):
            return None
        spread = call.keywords.get("**")
        ids, labels = call.argument(0, IDS), call.keywords.get(LABELS)
        has_embeddings = "inputs_embeds" in call.keywords
        return ModelPass(
            output,
            None if has_embeddings else self._layout_of_argument(ids, spread, IDS),
            self._layout_of_argument(labels, spread, LABELS),
            "loss" in output.attributes or "loss" in output.entries,
        )

    def _layout_of_argument(
        self, given: Value | None, spread: Value | None, name: str
    ) -> Layout | None:
        """The layout of an argument of a model, given by its name or in a batch."""
        way = LABELS_WAY if name == LABELS else IDS_WAY
        if given is not None:
            return self._places.layout_of(given, way)
        return (
            None if spread is None else self._places.layout_of_field(BatchField(spread, name), way)
        )

    def _model_pass_of_trainer(self, output: Parameter) -> ModelPass | None:
        """The pass whose output a trainer gives to a function for the loss (`compute_loss_func`);
        None otherwise.
        """
        trainer = output.given_by
        if trainer is None or output.name != "outputs" or trainer_of_hook(output) is None:
            return None
        if not trains_causal_model(trainer):
            return None
        return ModelPass(output, self._layout_of_argument(None, output, IDS), None, False)


def _place_in_rows(ids: Layout, place: TokenPosition) -> TokenPosition | None:
    """A place of logits that may count from their end, with the length of the ids; None where that is not known."""
    ((symbol, _),) = length_of_source(LOGITS_SOURCE).unknown
    times = dict(place.unknown).get(symbol, 0)
    if not times:
        return place
    # Each row has as many logits as ids, or only its last ones: both end at the same token.
    lengths = [length for one in ids if (length := one.array_length()) is not None]
    whole = place.plus(length_of_source(LOGITS_SOURCE), -times)
    return whole.plus(lengths[-1], times) if lengths else None


def _logits_and_labels_compared(call: CallEvent) -> tuple[Value, Value] | None:
    """What a loss or a gathering of log-probabilities compares; None for any other call."""
    if call.named(*LOSS_FUNCTIONS) or _calls_loss_object(call):
        logits, labels = call.argument(0, "input"), call.argument(1, "target")
    elif call.named(*LOGPROB_FUNCTIONS):
        logits, labels = call.argument(0, "logits"), call.argument(1, "index")
    elif call.named("torch.gather"):
        logits, labels = call.argument(0, "input"), call.argument(2, "index")
    elif call.named("torch.take_along_dim"):
        logits, labels = call.argument(0, "input"), call.argument(1, "indices")
    elif call.method == "gather":
        logits, labels = call.receiver, call.argument(1, "index")
    else:
        return None
    return None if logits is None or labels is None else (logits, labels)


def _calls_loss_object(call: CallEvent) -> bool:
    """Is it a call of `CrossEntropyLoss(...)` that was made before?"""
    receiver = call.receiver
    is_call = call.method in ("__call__", "forward") and isinstance(receiver, Result)
    return is_call and isinstance(receiver, Result) and receiver.call.named(*LOSS_CLASSES)


def _model_output_holding_logits(value: Value) -> Value | None:
    """The output of a model whose logits a value is."""
    field = batch_field_read(value)
    if field is not None:
        return field.batch if field.name == "logits" else None
    if isinstance(value, Attribute) and value.name == "logits":
        return value.base
    # Without labels a model gives its logits first where it gives a tuple.
    if isinstance(value, Item) and isinstance(value.base, Result) and constant_of(value.key) == 0:
        is_model = value.base.call.method in ("__call__", "forward")
        return value.base if is_model and LABELS not in value.base.call.keywords else None
    return None


def _logits_before_cast_or_softmax(value: Value) -> Value | None:
    """The logits that a softmax, a cast, a scaling or a move to a device is given."""
    if isinstance(value, Operation):
        return value.operands[0] if value.operator in SCALING else None
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.named(*SOFTMAXES) and call.args:
        return call.args[0]
    return call.receiver if call.method in SOFTMAX_METHODS | KEEPING_METHODS else None


def is_causal_model(model: Value | None) -> bool:
    """Is it certainly a causal model: loaded as one, or handed by a trainer of one to a hook?"""
    if isinstance(model, Parameter) and model.name in ("model", "self"):
        trainer = trainer_of_hook(model)
        return trainer is not None and trains_causal_model(trainer)
    if isinstance(model, Attribute) and model.name in ("model", "model_wrapped"):
        base = model.base
        if isinstance(base, Instance) and base.construction is not None:
            return trains_causal_model(base.construction)
    return is_causal_decoder(model)


def trains_causal_model(trainer: CallEvent) -> bool:
    """Does a trainer train a causal model?"""
    model = trainer.argument(0, "model")
    if isinstance(constant_of(model), str):
        return trainer.named("trl.*SFTTrainer")
    return is_causal_decoder(model)
