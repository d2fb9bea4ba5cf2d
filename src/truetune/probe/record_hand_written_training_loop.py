"""Records a loop of the user's own: what its model was given, and what the process holds beside it.

There is no trainer and no loader to ask. The batches are what the forward passes were given (`own_loop_hook`), their
labels are looked for in the loop's variables where the model was given none, and tokenizer and rows among the live
objects of the process (`live_objects`).

The trade-off: what can't be told for certain is left out, and the record says so (`lost`, `notes`). A wrong guess would
call a healthy loop broken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from truetune.probe.count_optimizer_steps_in_own_loop import LoopSteps
from truetune.probe.find_source_rows_of_batches import share_of_first_rows_in_batches
from truetune.probe.laws import measure_laws
from truetune.probe.live_objects import AliveObjects
from truetune.probe.peek_batches import PeekedBatch
from truetune.probe.recognise_ids_labels_and_mask import (
    IDS,
    LABELS,
    SHIFTED_LABELS,
    NamedBatch,
    name_batch,
    unshift_labels,
)
from truetune.probe.record_run_ready_to_train import (
    ObservedData,
    law_names,
    model_facts,
    record_without_laws,
    trial_of,
    unwrap_model,
)
from truetune.probe.run_record import Record
from truetune.probe.tokens_taught_by_own_loss import (
    TaughtTokens,
    labels_taught,
    outcome_of_loss_targets,
)

NO_LABELS = (
    "the loop computes its loss outside of the model, and none of its variables holds labels that"
    " fit the ids, so what is supervised is not known: call truetune.audit(model, loader,"
    " tokenizer, loss=...) in the script"
)
NO_IDS = "the model is not given token ids (input_ids), so no batch can be read"


def observe_loop(
    folder: Path,
    model: Any,
    batches: Sequence[Mapping[str, Any]],
    taught: Mapping[int, TaughtTokens],
    steps: LoopSteps,
    alive: AliveObjects,
    *,
    laws: str | Sequence[str],
    rank: int,
    world: int,
    read_variables: bool,
    keep: Callable[[Record], None],
) -> Record:
    """Record what the forward passes of a loop were given; `folder` takes the tokenizer's files.

    Args:
        batches: the tensors of each forward pass by the names of its arguments, (rows, tokens) each.
        taught: what the loop's own loss taught, by the number of the batch; empty where the model computes the loss.
        steps: those that optimizers took on the model's weights.
        alive: what the loop may work with: its tokenizer and rows are told by the model and the batches.
        laws: quick, all, none or names.
        read_variables: may the variables of the stack's frames be read? Labels are looked for there where the model is
            given none.
        keep: is given the record as far as it is made.
    """
    model = unwrap_model(model)
    facts = model_facts(model)
    vocabulary = facts["embedding_rows"]
    tokenizer = alive.tokenizer_for(model, vocabulary)
    named, own_loss = _named_batches_and_computes_own_loss(batches, vocabulary, read_variables)
    by_gradient = _batches_with_taught_labels(batches, taught, vocabulary) if own_loss else []
    if by_gradient:
        named = [batch.named for batch in by_gradient]
    peeked = [PeekedBatch(None, [], batch.inputs, batch) for batch in named]
    source_data = _live_rows_in_batches(peeked, tokenizer, alive.rows)
    seen = ObservedData(peeked, collate=None, dataset=source_data)
    record = record_without_laws(folder, seen, facts, source_data=source_data, tokenizer=tokenizer)
    record.facts |= {"rank": rank, "world": world, "steps": _facts_of_steps(steps)}
    if not peeked:
        record.facts["lost"] = NO_LABELS if own_loss else NO_IDS
        record.facts["notes"].append(record.facts["lost"])
    if by_gradient:
        record.facts["laws"] = {"loss-targets": _outcome_of_taught_batches(by_gradient, tokenizer)}
    keep(record)
    # A loss that the loop computes itself can't be called here, so no other law can be tested on it.
    names = () if own_loss else law_names(laws)
    if peeked and names and rank == 0:
        outcomes = record.facts["laws"] = {}
        trial = trial_of(model, seen, tokenizer, None, None, "loop")
        trial.optimizer = steps
        measure_laws(trial, names, outcomes=outcomes, keep=partial(keep, record))
    return record


def _named_batches_and_computes_own_loss(
    batches: Sequence[Mapping[str, Any]], vocabulary: int | None, read_variables: bool
) -> tuple[list[NamedBatch], bool]:
    """The batches by our names, and whether the loop computes its loss itself.

    A loop that does gives its model no labels. It keeps them in a variable of its own, which is looked for on the
    stack where that may be read.
    """
    named = [name_batch(batch, None, vocabulary) for batch in batches if IDS in batch]
    own_loss = bool(named) and all(LABELS not in batch.inputs for batch in named)
    if own_loss:
        named = list(_with_labels_of_variables(named[-1])) if read_variables else []
    return named, own_loss


@dataclass(frozen=True)
class _TaughtBatch:
    """A batch whose labels were read from the loop's own backward pass."""

    named: NamedBatch
    taught: TaughtTokens


def _batches_with_taught_labels(
    batches: Sequence[Mapping[str, Any]], taught: Mapping[int, TaughtTokens], vocabulary: int | None
) -> list[_TaughtBatch]:
    """The batches with the labels that the loop's own loss teaches; those of which it can't be told are left out."""
    taught_batches = []
    for number, tokens in sorted(taught.items()):
        named = name_batch(batches[number], None, vocabulary)
        ids = named.inputs.get(IDS)
        if ids is None or ids.shape != tokens.token.shape:
            continue
        labels = labels_taught(ids, tokens)
        if labels is not None:
            taught_batches.append(
                _TaughtBatch(NamedBatch({**named.inputs, LABELS: labels.labels}), tokens)
            )
    return taught_batches


def _outcome_of_taught_batches(batches: Sequence[_TaughtBatch], tokenizer: Any) -> dict[str, Any]:
    """The outcome of the law on targets, from the loop's own backward passes."""
    ids = [batch.named.inputs[IDS] for batch in batches]
    return outcome_of_loss_targets(ids, [batch.taught for batch in batches], tokenizer)


def _facts_of_steps(steps: LoopSteps) -> dict[str, Any]:
    """What the optimizer's steps did, as the record holds it."""
    return {
        "seen": steps.seen,
        "without_gradient": steps.without_gradient,
        "accumulated": steps.between.accumulated,
        "only_last": steps.between.only_last,
        "lost_passes": steps.between.lost_passes,
    }


def _live_rows_in_batches(peeked: list[PeekedBatch], tokenizer: Any, alive: Sequence[Any]) -> Any:
    """Those of the live rows whose texts stand in the batches; None where there are none."""
    if tokenizer is None or not peeked:
        return None
    shares = [(share_of_first_rows_in_batches(rows, peeked, tokenizer), rows) for rows in alive]
    share, best = max(shares, key=lambda one: one[0], default=(0.0, None))
    return best if share else None


def _with_labels_of_variables(batch: NamedBatch) -> Iterator[NamedBatch]:
    """The batch with the labels that a variable of the loop holds; nothing where none does, or several differ.

    Only labels that leave some of the ids out count: a copy of the ids may be anything.
    """
    ids = batch.inputs[IDS]
    distinct: list[torch.Tensor] = []
    for tensor in _integer_matrices_in_stack_variables(inspect.currentframe()):
        candidate = name_batch({IDS: ids, "candidate": tensor.to(ids.device)})
        shifted = candidate.inputs.get(SHIFTED_LABELS)
        labels = candidate.inputs.get(LABELS) if shifted is None else unshift_labels(shifted)
        if (
            labels is not None
            and bool((labels < 0).any())
            and not any(torch.equal(labels, one) for one in distinct)
        ):
            distinct.append(labels)
    if len(distinct) == 1:
        yield NamedBatch({**batch.inputs, LABELS: distinct[0]})


def _integer_matrices_in_stack_variables(frame: FrameType | None) -> Iterator[torch.Tensor]:
    """Two-dimensional tensors of whole numbers that the stack's variables hold, alone or in a dictionary or tuple."""
    # `f_locals` of a frame keeps its variables alive until the frame ends (before Python 3.13), so this runs in a
    # forked copy alone (`LoopRun.observe`): in the loop's own process a step's activations would stay on the device.
    # Without it, loops that compute their own loss from the logits could not be judged, since their labels never reach
    # the model (`test_labels_that_the_model_is_not_given_are_found_in_the_loop`).
    while frame is not None:
        for value in list(frame.f_locals.values()):
            parts = (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, tuple)
                else (value,)
            )
            for part in parts:
                if (
                    isinstance(part, torch.Tensor)
                    and part.dim() == 2
                    and not part.is_floating_point()
                ):
                    yield part
        frame = frame.f_back
