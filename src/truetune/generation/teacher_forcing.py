"""Forced: what a model thinks of given ids, each behind those before it, in batches of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from truetune.generation.backends.backend import ScoredIds
from truetune.generation.generate_answers import generating_model, restore_modules, run_in_halves
from truetune.probe.preserve_state import preserve_state

Ids = Sequence[int]
MAX_LOGITS = 1 << 26
"""Logits that are held at a time: 256 MiB in float32, and as much again for their softmax"""
MAX_BATCH_TOKENS = 8192
"""Tokens of a batch, pads among them"""


def score_sequences(
    model: Any,
    sequences: Sequence[Ids],
    stops: Collection[int],
    progress: Callable[[int, int], None] | None = None,
) -> list[ScoredIds]:
    """Log-probabilities in nats and the probability of any stop, in float32.

    Sequences of like length go together, padded on the right. Where their logits are more than `LOGITS`, they are made
    piece by piece, with a cache; not of models with a recurrent state, whose caches need not take more than a token.
    """
    inner, done = generating_model(model), 0
    found: list[ScoredIds | None] = [None] * len(sequences)
    rows = int(model.get_input_embeddings().weight.shape[0])
    with restore_modules(model), preserve_state(), torch.no_grad():
        inner.eval()
        parted = isinstance(inner, PreTrainedModel) and not inner._is_stateful
        for batch in _batches(
            sequences, MAX_BATCH_TOKENS if parted else min(MAX_BATCH_TOKENS, MAX_LOGITS // rows)
        ):
            for i, one in run_in_halves(
                lambda part: _score_rows(inner, part, sorted(stops), rows, parted), batch
            ):
                found[i] = one
            done += len(batch)
            if progress is not None:
                progress(done, len(sequences))
    return [one for one in found if one is not None]


def _batches(sequences: Sequence[Ids], tokens: int) -> Iterator[list[tuple[int, Ids]]]:
    """With their numbers, of like length together; the longest first, for what memory does not hold fails at once."""
    batch: list[tuple[int, Ids]] = []
    for row in sorted(enumerate(sequences), key=lambda row: -len(row[1])):
        if batch and (len(batch) + 1) * len(batch[0][1]) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _score_rows(
    model: Any, rows: list[Ids], stops: list[int], vocabulary: int, parted: bool
) -> list[ScoredIds]:
    longest, device = len(rows[0]), model.get_input_embeddings().weight.device
    ids = torch.tensor(
        [[*row, *[0] * (longest - len(row))] for row in rows], device=device, dtype=torch.long
    )
    mask = torch.tensor(
        [[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device
    )
    logprobs, stopping = np.full((2, len(rows), longest), np.nan, np.float32)
    width, cache = max(1, MAX_LOGITS // (len(rows) * vocabulary) if parted else longest), None
    for start in range(0, longest - 1, width):
        end = min(start + width, longest - 1)
        held = (
            {"past_key_values": cache, "use_cache": width < longest - 1}
            if parted
            else {"use_cache": False}
        )
        made = model(input_ids=ids[:, start:end], attention_mask=mask[:, :end], **held)
        cache = made.get("past_key_values")
        logits = made.logits[:, start - end :].float()
        whole = logits.logsumexp(-1)
        chosen = logits.gather(-1, ids[:, start + 1 : end + 1, None])[..., 0] - whole
        logprobs[:, start + 1 : end + 1] = chosen.cpu().numpy()
        if stops:
            stop = (logits[..., stops].logsumexp(-1) - whole).exp()
            stopping[:, start + 1 : end + 1] = stop.cpu().numpy()
    return [
        ScoredIds(logprobs[i, : len(row)].copy(), stopping[i, : len(row)].copy() if stops else None)
        for i, row in enumerate(rows)
    ]
