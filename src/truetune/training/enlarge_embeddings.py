"""Enlarges the embedding of a model for ids that it has no row for.

Every id that a run uses (data, template, stops, pad, added tokens) must have a row. The rows are made in a way that is
the same on every machine, so that an adapter fits a base that somebody else enlarges.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from truetune.errors import UsageError
from truetune.render.template_probes import ANSWER, QUESTION, Probes, alternating_chat
from truetune.settings.run_spec import RunSpec
from truetune.training.training_recipe import Choice

# Tensor cores take tiles of 8 to 64 values of 16 bits. Chosen, not measured: a larger multiple
# wastes rows, a smaller one may leave tiles half full.
ROWS_MULTIPLE = 64
"""Rows of an enlarged embedding: what matrix units take well"""


def enlarge_embeddings(model: Any, ids: int) -> int:
    """Enlarge the embedding for `ids` ids, to a multiple of 64; new rows are near the mean of the
    others, and always the same ones.

    Returns the number of rows there were. Whoever loads an adapter that was trained on such a model enlarges the base
    first. transformers' `mean_resizing` (Hewitt 2021, "Initializing New Word Embeddings"): with rows near the mean, a
    new token takes next to no probability from the others.
    """
    rows = int(model.get_input_embeddings().weight.shape[0])
    if ids > rows:
        with torch.random.fork_rng():
            # Always the same rows: a resumed run, or another process, has to find the values that
            # the first one trained from. The fork keeps the run's own sequence of random numbers
            # untouched.
            torch.manual_seed(0)
            model.resize_token_embeddings(ids, pad_to_multiple_of=ROWS_MULTIPLE, mean_resizing=True)
    return rows


def fit_embedding_to_ids(
    model: Any, tokenizer: Any, probes: Probes, spec: RunSpec, highest: int
) -> tuple[list[int], list[Choice]]:
    """Make the embedding hold every id that the run uses.

    Args:
        model: changed in place where it has too few rows.
        tokenizer: with the pad that was chosen.
        probes: of the tokenizer as the rows were encoded with it.
        spec: names the added tokens.
        highest: the highest id of the data.

    Returns:
        Ids whose rows nobody has trained yet, and what to tell.

    Raises:
        UsageError: an added token that the tokenizer does not hold.
    """
    known = tokenizer.get_vocab()
    # The tokenizer is extended before the rows are encoded; a token that is missing here was added
    # to the settings of a cache that does not know it.
    absent = [token for token in spec.training.added_tokens if token not in known]
    if absent:
        raise UsageError(
            f"training.added_tokens: {', '.join(absent)} are missing from the tokenizer that the"
            " rows were encoded with"
        )
    added = {known[token] for token in spec.training.added_tokens}
    used = {
        highest,
        *added,
        tokenizer.pad_token_id,
        *_ids_written_by_template(probes),
        *(stop.id for stop in probes.stops),
    }
    rows = enlarge_embeddings(model, max(used) + 1)
    # Ids above the old rows that the vocabulary already had: the published model has no row for
    # them. The pad is left out, for it is never read nor learned.
    beyond = {id for id in known.values() if rows <= id <= max(used)} - {tokenizer.pad_token_id}
    new = sorted(added | beyond)
    now = int(model.get_input_embeddings().weight.shape[0])
    why = (
        f"{max(used) + 1 - rows} ids had no row; to a multiple of {ROWS_MULTIPLE}, near the mean of the"
        " others"
    )
    return new, [Choice("embedding rows", f"{rows} -> {now}", why)] if now != rows else []


def rows_for_trainable_token_indices(model: Any, ids: Iterable[int]) -> dict[str, list[int]]:
    """What peft's `trainable_token_indices` takes, for the embedding and an untied head."""
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]
    names = {id(module): name for name, module in model.named_modules()}
    # With tied weights one entry names both; naming the head too would train the same rows twice.
    tied = layers[1] is None or layers[0].weight is layers[1].weight
    return {
        names[id(layer)].rpartition(".")[2]: sorted(ids)
        for layer in (layers[:1] if tied else layers)
    }


def _ids_written_by_template(probes: Probes) -> list[int]:
    """The ids that the chat template itself writes."""
    text = probes.text(alternating_chat(QUESTION, ANSWER)) or ""
    return list(probes.tokenizer.backend.encode(text, add_special_tokens=False).ids)
