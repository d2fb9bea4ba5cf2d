"""Computes the log-probabilities that a model gives to given ids, each behind those before it, in batches of bounded
memory.

The logits of a text are its length times the vocabulary, which for 8,000 tokens and a vocabulary of 152,000 are 5 GB in
float32. So where they are more than `MAX_LOGITS`, a batch is read piece by piece with a cache, and of each piece only
two numbers a token are kept.

The trade-off: pieces cost a cache and more calls. Models with a recurrent state are read whole, with fewer rows in a
batch, because their caches need not take more than one token at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from truetune.generation.backends.backend import Ids, Progress, ScoredIds
from truetune.generation.generate_answers import (
    restore_modules,
    run_batch_halving_on_out_of_memory,
    unwrap_to_model_with_generate,
)
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

MAX_LOGITS = 1 << 26
"""Logits that are held at a time: 256 MiB in float32, and as much again for their softmax"""
# Chosen, not measured: on a CPU larger batches are no faster; on a GPU half of it leaves small models idle.
MAX_BATCH_TOKENS = 8192
"""Tokens of a batch, pads among them"""


def score_sequences(
    model: Any,
    sequences: Sequence[Ids],
    stops: Collection[int],
    progress: Progress | None = None,
) -> list[ScoredIds]:
    """Log-probabilities in nats and the probability of any stop, in float32.

    Args:
        model: of transformers, be it wrapped; it is as before afterwards.
        sequences: ids, each behind nothing.
        stops: ids whose probability is told as well.
        progress: is told how many are done.

    Raises:
        torch.OutOfMemoryError: where a single sequence does not fit.
    """
    inner, done = unwrap_to_model_with_generate(model), 0
    scored: list[ScoredIds | None] = [None] * len(sequences)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    with restore_modules(model), preserve_state(), torch.no_grad():
        inner.eval()
        in_pieces = isinstance(inner, PreTrainedModel) and not inner._is_stateful
        tokens = MAX_BATCH_TOKENS if in_pieces else min(MAX_BATCH_TOKENS, MAX_LOGITS // vocabulary)
        score_rows = partial(
            _score_rows, inner, stops=sorted(stops), vocabulary=vocabulary, in_pieces=in_pieces
        )
        for batch in _batches_by_length_longest_first(sequences, tokens):
            for i, one in run_batch_halving_on_out_of_memory(score_rows, batch):
                scored[i] = one
            done += len(batch)
            if progress is not None:
                progress(done, len(sequences))
    return [one for one in scored if one is not None]


def _batches_by_length_longest_first(
    sequences: Sequence[Ids], tokens: int
) -> Iterator[list[tuple[int, Ids]]]:
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
    model: Any, rows: list[Ids], stops: list[int], vocabulary: int, in_pieces: bool
) -> list[ScoredIds]:
    """Score some rows together, padded on the right, so that every token has its usual position.

    Args:
        model: in evaluation mode.
        rows: the longest first.
        stops: ids whose probability is told as well.
        vocabulary: logits of one token.
        in_pieces: may the rows be read piece by piece, with a cache?
    """
    longest, device = len(rows[0]), model.get_input_embeddings().weight.device
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    ids = torch.tensor(padded, device=device, dtype=torch.long)
    is_token = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
    mask = torch.tensor(is_token, device=device)
    # (rows, longest) each; nan for the first token, which nothing stands before.
    logprobs, stop_probabilities = np.full((2, len(rows), longest), np.nan, np.float32)
    width, cache = longest, None
    if in_pieces:
        width = max(1, MAX_LOGITS // (len(rows) * vocabulary))
    # The last token is not read: there is none behind it to score.
    for start in range(0, longest - 1, width):
        end = min(start + width, longest - 1)
        cache_settings: dict[str, Any] = {"use_cache": False}
        if in_pieces:
            cache_settings = {"past_key_values": cache, "use_cache": width < longest - 1}
        output = model(input_ids=ids[:, start:end], attention_mask=mask[:, :end], **cache_settings)
        cache = output.get("past_key_values")
        # Some models put tokens of their own before the text: ours are the last.
        logits = output.logits[:, start - end :].float()
        total = logits.logsumexp(-1)
        own = logits.gather(-1, ids[:, start + 1 : end + 1, None])[..., 0] - total
        logprobs[:, start + 1 : end + 1] = own.cpu().numpy()
        if stops:
            stop = (logits[..., stops].logsumexp(-1) - total).exp()
            stop_probabilities[:, start + 1 : end + 1] = stop.cpu().numpy()
    # Copies, for a view of a row keeps the arrays of the whole batch.
    return [
        ScoredIds(
            logprobs[i, : len(row)].copy(),
            stop_probabilities[i, : len(row)].copy() if stops else None,
        )
        for i, row in enumerate(rows)
    ]
