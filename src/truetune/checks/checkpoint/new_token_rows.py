"""Finds the tokens that a checkpoint has and its base has not, and the rows of the embedding that
they need.

Both tokenizers and both embeddings are read, rows only as far as they are asked for. The pad token is left out: nothing
is learned of it, so that its row may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.adapter_tensor_names import parse_adapter_tensors
from truetune.checkpoint.find_input_embedding_and_output_head import (
    EMBEDDING_NAMES,
    TokenMatrix,
    find_embedding,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.tokens_added_beyond_base import read_added_tokens
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.errors import TemplateError, TokenizerError
from truetune.render.find_tokenizer_folder import read_templates
from truetune.render.template import Template

# Rows whose norms stand for all: their median is known to some percent, and reading more would take longer than the
# rest.
SAMPLED_ROWS = 1000
# Of the median norm of ordinary rows. Chosen, not measured: rows that were drawn by chance have a tenth of it and more.
# Anything from 1e-6 to 1e-2 tells the same rows apart.
TINY_SHARE_OF_NORM = 1e-3


CHAT = [{"role": "user", "content": "Is it open?"}, {"role": "assistant", "content": "Yes."}]
"""Of which a template writes the marks that each chat has"""
SPECIAL_TOKENS = ("bos_token", "eos_token")
"""Names that templates write"""


class UntrainedToken(NamedTuple):
    """A token of a template whose row of the base is near zero."""

    text: str
    id: int
    norm: float
    median_norm: float
    """Of ordinary rows"""


@dataclass(frozen=True)
class NewTokens:
    """New tokens, the pad token left out: it needs no trained row."""

    ids: dict[str, int]
    base_size: int
    """Tokens of the base"""
    base_rows: TokenMatrix | None
    """The base's embedding"""
    rows: TokenMatrix | None
    """The checkpoint's embedding; None in an adapter that does not hold one"""

    def token_with_id(self, id: int) -> str:
        """The token and its id, as a message shows them."""
        return f"{next(text for text, other in self.ids.items() if other == id)} ({id:,})"

    def median_base_row_norm(self) -> float:
        """The median norm of a sample of rows that the base's tokens have; 0 where there is no embedding."""
        matrix = self.rows or self.base_rows
        return 0.0 if matrix is None else _median_row_norm(matrix, self.base_size)

    def ids_with_row_in(self, matrix: TokenMatrix | None) -> NDArray[np.int64]:
        """The new ids that have a row in a matrix, in order; none without a matrix."""
        ids = sorted(id for id in self.ids.values() if matrix and 0 <= id < len(matrix))
        return np.array(ids, dtype=np.int64)


def find_new_tokens(checkpoint: Checkpoint) -> NewTokens | None:
    """The new tokens; None where there are none, or where it can't be told."""
    new, base = checkpoint.new_tokens, checkpoint.base
    if base is None or checkpoint.faults or new is None:
        return None
    pad = checkpoint.tokenizer_config.get("pad_token")
    # Older files spell a token as a dictionary of its settings.
    pad = pad.get("content") if isinstance(pad, dict) else pad
    ids = {text: id for text, id in new.ids.items() if text != pad}
    if not ids:
        return None
    return NewTokens(
        ids, new.base_size, find_embedding(base.tensors), find_embedding(checkpoint.tensors)
    )


def _tokens_written_by_template(checkpoint: Checkpoint, rows: int) -> dict[str, int]:
    """The added tokens, with their ids below a number of rows, that a short chat holds as the template writes it."""
    tokens = read_added_tokens(checkpoint.folder)
    if not tokens:
        return {}
    chat = _render_short_chat(checkpoint)
    return {text: id for text, id in tokens.items() if text in chat and 0 <= id < rows}


def find_untrained_template_tokens(checkpoint: Checkpoint) -> list[UntrainedToken]:
    """The marks of an adapter's chat template that the base has and never trained; none where it can't be told.

    Only marks that each chat has: those of tools and pictures may never be written.
    """
    base = checkpoint.base
    if checkpoint.kind != "adapter" or base is None or checkpoint.faults:
        return []
    matrix = find_embedding(base.tensors)
    if matrix is None:
        return []
    written = _tokens_written_by_template(checkpoint, len(matrix))
    if not written:
        return []
    median = _median_row_norm(matrix, len(matrix))
    norms = np.linalg.norm(matrix.rows(np.array(list(written.values()), np.int64)), axis=1)
    return [
        UntrainedToken(text, id, float(norm), median)
        for (text, id), norm in zip(written.items(), norms, strict=True)
        if norm < TINY_SHARE_OF_NORM * median
    ]


def _render_short_chat(checkpoint: Checkpoint) -> str:
    """A question and its answer as the checkpoint's default template writes them; empty where it has none."""
    settings = checkpoint.tokenizer_config
    special = {
        name: value.get("content", "") if isinstance(value, dict) else str(value)
        for name in SPECIAL_TOKENS
        if (value := settings.get(name)) is not None
    }
    try:
        source = read_templates(checkpoint.folder, dict(settings)).get("default")
        return str(Template(source, special).render(CHAT)) if source else ""
    except (TokenizerError, TemplateError):
        return ""


def _median_row_norm(matrix: TokenMatrix, size: int) -> float:
    """The median norm of a sample of the first `size` rows."""
    places = np.linspace(0, min(size, len(matrix)) - 1, num=SAMPLED_ROWS)
    ids = np.unique(places.astype(np.int64))
    return float(np.median(np.linalg.norm(matrix.rows(ids), axis=1)))


def ids_adapter_can_change(checkpoint: Checkpoint) -> set[int] | None:
    """The ids whose rows an adapter can change; None where that is all of them."""
    pieces = parse_adapter_tensors(checkpoint.tensors)
    embeddings = tuple(name.removesuffix(".weight") for name in EMBEDDING_NAMES)
    delta = "trainable_tokens_delta"
    if any(piece.module.endswith(embeddings) and piece.part != delta for piece in pieces):
        return None
    if not any(piece.part == delta for piece in pieces):
        return set()
    # A list for the embedding, or one for each of several modules.
    indices = checkpoint.adapter_config.get("trainable_token_indices")
    lists = list(indices.values()) if isinstance(indices, dict) else [indices]
    return {id for ids in lists if isinstance(ids, list) for id in ids if type(id) is int}


def explain_no_new_tokens(checkpoint: Checkpoint) -> Unmet:
    """Why there are no new tokens to look at."""
    if checkpoint.faults:
        return BROKEN
    if checkpoint.new_tokens is None:
        return Unmet(
            "its tokenizer and that of the base are not both there",
            "put tokenizer.json beside the weights",
        )
    return Unmet("its tokenizer has no token that the base's lacks")
