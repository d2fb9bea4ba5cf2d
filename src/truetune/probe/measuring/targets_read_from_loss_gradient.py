"""What the loss teaches at each position, read from its gradient at the last hidden state.

The gradient of a cross-entropy there is w J^T(p - e_y): zero where nothing is learned, and else it tells the target y
and the weight w, whatever the labels are called, whether the logits were ever made (fused kernels) or not.

1. The trainer computes its loss. Behind the body of the model the hidden states are cut off from it, as leaves, so that
   one backward pass through the head gives their gradient (`outputs_and_gradients_of_forward_passes`).
2. For each position the same gradient is made of each target that it may have: the next token, the one after, itself,
   its label (`_target_gradients`).
3. The target whose gradient explains the real one, up to a factor, is what is learned; the factor is its weight
   (`nearest_target_and_weight`).

The trade-off: a loss on whole distributions (distillation) has no single target, and its law is untested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from truetune.probe.compact_vocabulary_to_used_ids import VocabMap, as_vocab_tensor, vocab_map_of
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    compute_once_for_same_weights,
    fix_mode_without_waiting_for_processes,
    loss_of,
    replace_attribute,
    trainer_autocast,
)

# Chosen, not measured: batches of one run are made alike; each is a forward and a backward pass.
BATCHES_READ = 2
# Positions of a batch whose targets are looked for. Chosen, not measured: each has a gradient of the model's width for
# each of four targets.
MAX_POSITIONS = 256
# A target explains a gradient that is apart from its own by less, as a share of the gradient's size. Chosen, not
# measured: gradients of unlike targets are nearly orthogonal, so that a wrong target leaves a residual near 1.
MAX_RESIDUAL = 0.3
# A label whose gradient would be less than this share of the largest one is known by heart, and not missing. Chosen,
# not measured.
MIN_EXPECTED_GRADIENT = 1e-3
IGNORED = -100
NEXT, AFTER, SAME, LABEL = (
    "the next token",
    "the token after the next",
    "the token itself",
    "its label",
)


@dataclass
class LearnedTargets:
    """One forward pass of a micro-batch: (lines, tokens) each."""

    ids: torch.Tensor
    gradient: torch.Tensor
    """bool: does the loss depend on the prediction made here?"""
    labelled: torch.Tensor | None
    """bool: does a label say that the prediction made here is in the loss? None where the batch has no labels"""
    places: torch.Tensor
    """(n, 2) line and position of those looked at closely"""
    target: list[str | None]
    """(n) what they learn; None where no target explains the gradient"""
    weight: torch.Tensor
    """(n) of the token in the loss; negative where it is made less likely"""
    silent: int
    """Labelled positions without gradient, other than those that the model knows by heart already"""
    unheard: torch.Tensor
    """(m, 2) places of some of these"""


def learned_targets(trial: Trial) -> list[tuple[int, LearnedTargets]]:
    """What the loss of the first batches teaches, with the batch's number. Raises Untested where none can be read."""
    targets: list[tuple[int, LearnedTargets]] = compute_once_for_same_weights(
        trial, "learned targets", lambda: _targets_of_batches(trial)
    )
    return targets


def refuse_losses_without_targets(passes: list[tuple[int, LearnedTargets]]) -> None:
    """Raises Untested where no token explains most gradients: one on whole distributions, as of a distillation."""
    targets = [target for _, pass_ in passes for target in pass_.target]
    if targets.count(None) > len(targets) / 2:
        raise Untested("the loss is no cross-entropy of one token a position")


def _targets_of_batches(trial: Trial) -> list[tuple[int, LearnedTargets]]:
    """Those of the first batches that can be read; raises the reason of the last one where none can."""
    targets: list[tuple[int, LearnedTargets]] = []
    reason = Untested("there is no batch")
    for number, batch in enumerate(trial.batches):
        try:
            targets += [(number, pass_) for pass_ in targets_of_batch(trial, batch)]
        except Untested as error:
            reason = error
        if len({number for number, _ in targets}) == BATCHES_READ:
            break
    if not targets:
        raise reason
    return targets


def targets_of_batch(trial: Trial, batch: dict[str, Any]) -> list[LearnedTargets]:
    """What the loss of a batch teaches, each pass of the model that it learns from. Raises Untested."""
    base: Any = getattr(trial.model, "get_base_model", None)
    inner: Any = base() if base is not None else trial.model
    if getattr(getattr(inner, "config", None), "is_encoder_decoder", False):
        raise Untested("the model is no causal one")
    head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    backbone = getattr(inner, "base_model", None)
    if head is None or backbone is None or backbone is inner:
        raise Untested("the model has no head over a body of its own")
    if head.weight.numel() == 0:
        raise Untested("the head's weights are not in this process")
    with fix_mode_without_waiting_for_processes(trial, training=True):
        passes = outputs_and_gradients_of_forward_passes(trial, batch, inner, backbone)
        return [
            _learned_targets_of_pass(trial, inner, backbone, head, batch, *forward_pass)
            for forward_pass in passes
        ]


def outputs_and_gradients_of_forward_passes(
    trial: Trial, batch: dict[str, Any], inner: Any, backbone: Any
) -> list[tuple[torch.Tensor, Any, Any, torch.Tensor]]:
    """(ids, the body's output, hidden states, gradient) of each pass; the body runs without gradients."""
    seen: list[tuple[torch.Tensor, Any, Any]] = []
    vocab_map = vocab_map_of(inner)
    # A stack of whether gradients were wanted when the body was called: bodies may call themselves (encoders inside).
    learns: list[bool] = []

    def without_gradient(module: Any, args: Any) -> None:
        """Before the body: it makes no graph, which would hold the activations of all layers."""
        learns.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)

    def cut(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        """After the body: the hidden states become leaves, and the head works on them with gradients."""
        if not learns.pop():
            return None
        torch.set_grad_enabled(True)
        ids = _ids_of_call(args, kwargs, batch, vocab_map)
        hidden = output[0].detach().requires_grad_()
        if ids is None or ids.shape != hidden.shape[:2]:
            raise Untested("the hidden states are not one for each token")
        seen.append((ids, output, hidden))
        if isinstance(output, tuple):
            return (hidden, *output[1:])
        output.last_hidden_state = hidden
        return output

    handles = [
        backbone.register_forward_pre_hook(without_gradient),
        backbone.register_forward_hook(cut, with_kwargs=True),
    ]
    try:
        with torch.enable_grad():
            loss = loss_of(trial, batch)
    finally:
        for handle in handles:
            handle.remove()
    if not seen or not loss.requires_grad:
        raise Untested("the loss does not come from the model's hidden states")
    # `allow_unused`: a pass of the reference model, or of a metric, has no part in the loss.
    gradients = torch.autograd.grad(loss, [hidden for *_, hidden in seen], allow_unused=True)
    with_gradient = [
        (*pass_, gradient)
        for pass_, gradient in zip(seen, gradients, strict=True)
        if _is_nonzero_gradient(gradient)
    ]
    if not with_gradient:
        raise Untested("the loss has no gradient at the hidden states")
    return with_gradient


def _is_nonzero_gradient(gradient: torch.Tensor | None) -> bool:
    """Is there one, and is it not all zero?"""
    return gradient is not None and bool((gradient != 0).any())


def _ids_of_call(
    args: Any, kwargs: Any, batch: dict[str, Any], vocab_map: VocabMap | None
) -> torch.Tensor | None:
    """The ids that the body was called with, as vocabulary ids; those of the batch where it was given embeddings."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    if ids is None:
        return batch.get("input_ids")
    # The body of a compacted model is given slots; labels and targets are ids.
    return ids if vocab_map is None else vocab_map.to_ids(ids)


def _learned_targets_of_pass(
    trial: Trial,
    inner: Any,
    backbone: Any,
    head: Any,
    batch: dict[str, Any],
    ids: torch.Tensor,
    output: Any,
    hidden: torch.Tensor,
    gradient: torch.Tensor,
) -> LearnedTargets:
    """What one pass learns.

    Args:
        trial: the run.
        inner: the model of transformers inside PEFT's.
        backbone: its body, without the head.
        head: over the vocabulary.
        batch: the micro-batch.
        ids: (lines, tokens) that the body was given, as vocabulary ids.
        output: what the body returned.
        hidden: (lines, tokens, width) last hidden states.
        gradient: of the loss at them, of that shape.
    """
    learns = (gradient != 0).any(-1)
    labels = _labels_in_fitting_convention(batch, ids, learns)
    labelled = None if labels is None else labels != IGNORED
    places = evenly_limited_positions(learns.nonzero())
    candidates = list(_candidate_targets_of_positions(ids, labels, places))
    own = [
        _target_gradients(trial, inner, backbone, head, output, hidden, places, targets)
        for _, targets in candidates
    ]
    target, weight = nearest_target_and_weight(
        gradient[places[:, 0], places[:, 1]].float(), [name for name, _ in candidates], own
    )
    missing = places[:0] if labelled is None else (labelled & ~learns).nonzero()
    unheard, silent = evenly_limited_positions(missing), 0
    if len(unheard) and labels is not None:
        targets = labels[unheard[:, 0], unheard[:, 1]]
        expected = _target_gradients(trial, inner, backbone, head, output, hidden, unheard, targets)
        # A token that the model is certain of has a gradient near 0 even if it is learned.
        loud = expected.norm(dim=-1) > MIN_EXPECTED_GRADIENT * torch.stack(own).norm(dim=-1).max()
        unheard, silent = unheard[loud], round(len(missing) * float(loud.float().mean()))
    return LearnedTargets(ids, learns, labelled, places, target, weight, silent, unheard)


def _labels_in_fitting_convention(
    batch: dict[str, Any], ids: torch.Tensor, learns: torch.Tensor
) -> torch.Tensor | None:
    """The label of what is predicted at each position, in the convention (shifted by one, or not) that fits better."""
    if "shift_labels" in batch and batch["shift_labels"].shape == ids.shape:
        return torch.as_tensor(batch["shift_labels"])
    labels_by_line = [label for line in ids for label in _labels_of_row_in_line(batch, line)]
    if len(labels_by_line) != len(ids):
        return None
    as_given = torch.stack(labels_by_line)
    shifted = torch.nn.functional.pad(as_given[:, 1:], (0, 1), value=IGNORED)
    fits = [((labels != IGNORED) == learns).sum() for labels in (shifted, as_given)]
    return shifted if fits[0] >= fits[1] else as_given


def _labels_of_row_in_line(batch: dict[str, Any], line: torch.Tensor) -> Iterator[torch.Tensor]:
    """The labels of the row of the batch that this line holds; the first that fits.

    A trainer may put chosen and rejected rows into one pass, or cut padding off: a line is found again by its ids.
    """
    for key in batch:
        if not key.endswith("input_ids") or not isinstance(batch[key], torch.Tensor):
            continue
        labels = _labels_for_ids_key(batch, key)
        if labels is None or labels.shape != batch[key].shape:
            continue
        for row, label in zip(batch[key], labels, strict=True):
            shared = min(len(row), len(line))
            if bool((row[:shared] == line[:shared]).all()):
                aligned = torch.full_like(line, IGNORED)
                aligned[:shared] = label[:shared]
                yield aligned
                return


def _labels_for_ids_key(batch: dict[str, Any], key: str) -> torch.Tensor | None:
    """The labels that belong to the ids under this key, with what masks and weights leave out; None without any."""
    prefix = key.removesuffix("input_ids")
    labels, mask = batch.get(f"{prefix}labels"), batch.get(f"{prefix}completion_mask")
    if labels is None and mask is not None:
        labels = batch[key].masked_fill(mask == 0, IGNORED)
    # A loss that weighs tokens learns nothing where the weight is 0.
    for name in ("loss_weights", "weights", "loss_mask", "weight"):
        if labels is not None and getattr(batch.get(name), "shape", None) == labels.shape:
            labels = labels.masked_fill(batch[name] == 0, IGNORED)
    return labels


def evenly_limited_positions(places: torch.Tensor) -> torch.Tensor:
    """At most MAX_POSITIONS of the positions, evenly spread."""
    return places[:: max(1, -(-len(places) // MAX_POSITIONS))]


def _candidate_targets_of_positions(
    ids: torch.Tensor, labels: torch.Tensor | None, places: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """What a position may have as its target: (name, (n,) ids, IGNORED where there is none)."""
    padded = torch.nn.functional.pad(ids, (0, 2), value=IGNORED)
    for offset, name in ((1, NEXT), (2, AFTER), (0, SAME)):
        yield name, padded[places[:, 0], places[:, 1] + offset]
    if labels is not None:
        yield LABEL, labels[places[:, 0], places[:, 1]]


def _target_gradients(
    trial: Trial,
    inner: Any,
    backbone: Any,
    head: Any,
    output: Any,
    hidden: torch.Tensor,
    places: torch.Tensor,
    targets: torch.Tensor,
) -> torch.Tensor:
    """(n, width) gradient of the negative log-likelihood of each target at its own hidden state; 0 without a target."""
    leaf = hidden[places[:, 0], places[:, 1]][None].detach().requires_grad_()
    with trainer_autocast(trial), torch.enable_grad():
        logits = logits_of_hidden(inner, backbone, head, output, leaf)
    loss = torch.nn.functional.cross_entropy(
        logits[0].float(), targets, ignore_index=IGNORED, reduction="sum"
    )
    return torch.autograd.grad(loss, leaf)[0][0].float()


def logits_of_hidden(
    inner: Any, backbone: Any, head: Any, output: Any, hidden: torch.Tensor
) -> torch.Tensor:
    """The logits of hidden states by the model's own forward, its scales and caps included."""
    # Through the model's own forward, since some scale or cap their logits (Gemma, Cohere).
    body_output = (hidden,) if isinstance(output, tuple) else type(output)(last_hidden_state=hidden)
    ids = torch.zeros(hidden.shape[:2], dtype=torch.long, device=hidden.device)
    try:
        with replace_attribute(backbone, "forward", lambda *_, **__: body_output):
            logits: torch.Tensor = inner(input_ids=ids).logits
    except (AttributeError, TypeError, ValueError, RuntimeError):
        logits = _head_logits_with_vocabulary_ids(inner, head(hidden))
    return (
        logits
        if logits.shape[:2] == hidden.shape[:2]
        else _head_logits_with_vocabulary_ids(inner, head(hidden))
    )


def _head_logits_with_vocabulary_ids(inner: Any, logits: torch.Tensor) -> torch.Tensor:
    """Logits of the head alone, in which ids are columns, as in those of the whole model."""
    border = vocab_map_of(inner)
    return logits if border is None else as_vocab_tensor(logits, border)


def nearest_target_and_weight(
    gradient: torch.Tensor, names: list[str], own: list[torch.Tensor]
) -> tuple[list[str | None], torch.Tensor]:
    """The candidate that explains each gradient best, the first of equals, and its weight."""
    # The factor w that brings each candidate's own gradient closest to the one that is there, and what is left of it
    # then.
    weights = torch.stack([(gradient * g).sum(-1) / (g * g).sum(-1).clamp_min(1e-30) for g in own])
    left = torch.stack(
        [(gradient - w[:, None] * g).norm(dim=-1) for w, g in zip(weights, own, strict=True)]
    )
    left = left / gradient.norm(dim=-1).clamp_min(1e-30)
    # The next token wins unless another explains clearly more: where tokens repeat, several candidates are equal.
    best = torch.where(left[0] <= left.min(0).values * 1.5 + 1e-3, 0, left.argmin(0))
    index = torch.arange(gradient.shape[0], device=gradient.device)
    clear = (left[best, index] < MAX_RESIDUAL).tolist()
    return [names[b] if ok else None for b, ok in zip(best.tolist(), clear, strict=True)], weights[
        best, index
    ]
