"""Forward passes for the laws: on a piece of the real batches, in the trainer's own mode, with nothing drawn again.

Laws about logits call the model itself (`compute_logits`), without the trainer's loss; those about gradients go through
the trainer (`trainer_gradients`). The trade-off: rows are cut to a few hundred tokens, so a fault that begins further
back is not seen (docs/laws.md, Limits).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.packed_documents import (
    document_spans,
    holds_packed_line,
    lines_with_ids_of_batches,
)
from truetune.probe.measuring.rounding_tolerance import (
    coarsest_precision,
    forward_inputs_without_labels,
    relative_difference_allowing_expert_routing,
    rounding_tolerance,
)

# Rows, and tokens of each, that a law uses of a batch; a batch with images is used whole. Chosen, not measured: faults
# of masks and positions show in any row; twice as many tokens take twice the time of a large model on a CPU.
MAX_ROWS = 4
MAX_ROW_TOKENS = 256
# No difference beyond this is put down to rounding: what is a quarter off is another answer, in any dtype.
MAX_ROUNDING_DIFFERENCE = 0.25
MEDIA_PREFIXES = ("pixel", "image", "audio", "video", "input_features")
# Places of a line whose logits are made, where the model can make some alone: 512 places of 150,000 columns are 300 MB
# in float32.
MAX_KEPT_POSITIONS = 512


def compute_logits(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    training: bool = True,
    keep: torch.Tensor | None = None,
    seed: int | None = None,
    **more: Any,
) -> torch.Tensor:
    """Compute the model's logits, (rows, tokens, vocabulary), without gradients; `keep` are the places
    whose logits are made.

    Dropout is off and random numbers are the same in each call; with a `seed`, dropout is as it is and they are drawn
    from that. Raises Untested where a model gives no such logits.
    """
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise Untested("the model is an encoder-decoder")
    arguments = forward_inputs_without_labels(
        {**({"use_cache": False} if training else {}), **inputs, **more}, model
    )
    partly = keep is not None and "logits_to_keep" in forward_inputs_without_labels(
        {"logits_to_keep": 0}, model
    )
    model.train(training)
    # Also without a seed: layers that draw (router jitter, noise) draw the same in each call.
    torch.manual_seed(seed or 0)
    with torch.no_grad(), no_dropout(model) if seed is None else nullcontext():
        out = model(**arguments, **({"logits_to_keep": keep} if partly else {}))
    values = logits_of_output(out)
    if keep is not None and not partly:
        values = values[:, keep.to(values.device)]
    if values.shape[:2] != (
        len(arguments["input_ids"]),
        len(keep) if keep is not None else arguments["input_ids"].shape[1],
    ):
        raise Untested(f"the logits have the shape {tuple(values.shape)}: not one for each token")
    return values


def logit_difference_allowed_by_rounding(
    model: torch.nn.Module, inputs: Mapping[str, Any], model_logits: torch.Tensor, **more: Any
) -> float:
    """Largest relative difference that rounding explains, where `model_logits` are the model's logits of `inputs`.

    In 16 bits this is measured: what one rounding step more or less in every matrix product does to these logits,
    twice over; by `rounding_tolerance` at least, by CAP at most.
    """
    least, dtype = rounding_tolerance(model), coarsest_precision(model)
    if dtype in (torch.float32, torch.float64):
        return least
    # A generator of its own, so that the random numbers of the model are those of the pass that it is compared with.
    drawn = torch.Generator().manual_seed(0)

    def move_by_one_step(module: torch.nn.Module, args: Any, out: Any) -> Any:
        """Move each column of an output by one rounding step, up or down."""
        if not isinstance(out, torch.Tensor) or not out.is_floating_point():
            return None
        sign = (
            torch.randint(0, 2, out.shape[-1:], generator=drawn).to(out.device, torch.float32) * 2
            - 1
        )
        return (out.float() * (1 + torch.finfo(dtype).eps * sign)).to(out.dtype)

    # Layers with a matrix: there a product is rounded.
    leaves = [
        m
        for m in model.modules()
        if not list(m.children()) and any(p.dim() > 1 for p in m.parameters())
    ]
    hooks = [leaf.register_forward_hook(move_by_one_step) for leaf in leaves]
    try:
        moved = compute_logits(model, inputs, **more)
    finally:
        for hook in hooks:
            hook.remove()
    rounding = relative_difference_allowing_expert_routing(model_logits, moved, model)
    # Twice, as the two computations that a law compares each round on their own.
    return max(least, min(2 * rounding, MAX_ROUNDING_DIFFERENCE)) if rounding == rounding else least


def logits_of_output(out: Any) -> torch.Tensor:
    """The logits in what a model returns: an object, a mapping or a tuple."""
    values = out.get("logits") if isinstance(out, Mapping) else getattr(out, "logits", None)
    if values is None and isinstance(out, tuple | list):
        values = next(
            (item for item in out if isinstance(item, torch.Tensor) and item.dim() == 3), None
        )
    if isinstance(out, torch.Tensor):
        values = out
    if not isinstance(values, torch.Tensor) or values.dim() != 3:
        raise Untested("the model gives no logits of each token")
    return values


@contextmanager
def no_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Inside, no dropout is active: the rates of dropout modules, and those that attention modules hold as
    a number, are 0.
    """
    rates = [(module, name, value) for module, name, value in dropout_rates(model)]
    try:
        for module, name, _ in rates:
            setattr(module, name, 0.0)
        yield
    finally:
        for module, name, value in rates:
            setattr(module, name, value)


def dropout_rates(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, float]]:
    """Rates above 0: module, attribute, rate."""
    for module in model.modules():
        names = ("p",) if isinstance(module, torch.nn.modules.dropout._DropoutNd) else vars(module)
        for name in names:
            value = getattr(module, name, None)
            if isinstance(value, float) and value > 0 and (name == "p" or "dropout" in name):
                yield module, name, value


def first_batch_with_ids(trial: Trial) -> dict[str, Any]:
    """The first batch with (rows, tokens) ids. Raises Untested."""
    for batch, _ in lines_with_ids_of_batches(trial.batches):
        return batch
    raise Untested("no batch has input_ids")


def cut_rows(trial: Trial, batch: dict[str, Any], rows: int = MAX_ROWS) -> dict[str, Any]:
    """Cut a real batch to its first rows, and these to LONGEST tokens; it stays whole where keys belong to
    no single token (images, packs).
    """
    inputs = forward_inputs_without_labels(batch, trial.model)
    if holds_packed_line(batch):
        return inputs
    shape = batch["input_ids"].shape
    # Such as image features: which of them belong to the rows that stay is not known.
    if any(isinstance(v, torch.Tensor) and v.dim() and v.shape != shape for v in inputs.values()):
        return inputs
    # The padding is cut away, not the text.
    left = padding_side(trial) == "left"
    places = slice(-MAX_ROW_TOKENS, None) if left else slice(None, MAX_ROW_TOKENS)
    return {
        key: v[:rows, places] if isinstance(v, torch.Tensor) and v.dim() else v
        for key, v in inputs.items()
    }


def unpadded_documents(trial: Trial) -> list[torch.Tensor]:
    """(tokens,) ids of single rows or documents of the real batches, without padding, the longest first.

    Raises Untested where rows hold more than text."""
    if any(name.startswith(MEDIA_PREFIXES) for batch in trial.batches for name in batch):
        raise Untested("rows hold more than text, and can't be taken out of their batch")
    documents = [
        batch["input_ids"][line, a:b][:MAX_ROW_TOKENS]
        for batch, line in lines_with_ids_of_batches(trial.batches)
        for a, b in document_spans(batch, line)
    ]
    if not documents:
        raise Untested("no batch has input_ids")
    return sorted(documents, key=len, reverse=True)


def stack_rows(
    trial: Trial, rows: list[torch.Tensor], side: str = "right", extra: int = 0
) -> dict[str, torch.Tensor]:
    """Stack rows to one padded batch: input_ids, attention_mask."""
    longest = max(map(len, rows)) + extra
    pad = trial.tokenizer.pad_token_id if trial.tokenizer is not None else None
    batch: dict[str, list[torch.Tensor]] = {"input_ids": [], "attention_mask": []}
    for row in rows:
        around = (longest - len(row), 0) if side == "left" else (0, longest - len(row))
        batch["input_ids"].append(torch.nn.functional.pad(row, around, value=pad or 0))
        batch["attention_mask"].append(
            torch.nn.functional.pad(torch.ones_like(row), around, value=0)
        )
    return {key: torch.stack(values) for key, values in batch.items()}


def padding_side(trial: Trial) -> str | None:
    """Where the trainer's batches have their padding; None where none of them has any."""
    for batch in trial.batches:
        mask = batch.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and bool((mask == 0).any()):
            return "left" if bool((mask[:, 0] == 0).any()) else "right"
    return None


def alter_tokens(ids: torch.Tensor, trial: Trial) -> torch.Tensor:
    """Alter the tokens of a batch: others, drawn from the same ids, instead of the ordinary ones; special
    tokens stay.
    """
    special = torch.tensor(
        sorted(getattr(trial.tokenizer, "all_special_ids", None) or [-1]), device=ids.device
    )
    ordinary = ~torch.isin(ids, special)
    # Ids of the rows alone: others may be unused rows of the embedding, whose values are extreme.
    pool = torch.unique(ids[ordinary])
    if len(pool) < 2:
        raise Untested("the rows hold too few different tokens")
    places = torch.searchsorted(pool, ids.clamp(pool[0], pool[-1]).contiguous())
    # Half of the pool away, so that no token becomes itself.
    shift = max(len(pool) // 2, 1)
    return torch.where(ordinary, pool[(places + shift) % len(pool)], ids)


def is_causal(trial: Trial, batch: dict[str, Any]) -> bool:
    """Do the logits of a real row stay as they are where the last token of its text is another one?"""
    inputs = cut_rows(trial, batch, rows=1)
    ids = inputs["input_ids"][:1]
    text = torch.nonzero(
        inputs["attention_mask"][0] if _has_mask_of_lines(inputs, ids) else torch.ones_like(ids[0])
    ).flatten()
    last = int(text[-1])
    if last < 1:
        return True
    different = ids[0][ids[0] != ids[0, last]]
    if not len(different):
        return True
    other = ids.clone()
    # A token of the row itself: a miniature's compacted vocabulary holds no others.
    other[0, last] = different[0]
    rest = {
        key: value[:1] if isinstance(value, torch.Tensor) and value.dim() else value
        for key, value in inputs.items()
    }
    before, after = (
        compute_logits(trial.model, rest | {"input_ids": x})[:, :last] for x in (ids, other)
    )
    return relative_difference_allowing_expert_routing(
        before, after, trial.model
    ) <= logit_difference_allowed_by_rounding(trial.model, rest, compute_logits(trial.model, rest))


def _has_mask_of_lines(inputs: Mapping[str, Any], ids: torch.Tensor) -> bool:
    """Has the batch a mask of lines, (rows, tokens) as the ids are?"""
    mask = inputs.get("attention_mask")
    return isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] == ids.shape[1]
