"""Writes fixes of live objects as lines for the user's script: there is no file to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from truetune.checks.batch.ids_beyond_the_model import IdsBeyondTheModel
from truetune.checks.findings import Finding
from truetune.checks.tokenizer.pad_is_stop_token import PadIsStopToken
from truetune.checks.tokenizer.pad_missing import PadMissing
from truetune.checks.tokenizer.stop_ids_incomplete import StopIdsIncomplete
from truetune.checks.tokenizer.token_id_outside_embedding import TokenIdOutsideEmbedding
from truetune.checks.tokenizer.tokenizer_pads_on_the_left import TokenizerPadsOnTheLeft
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.template_probes import Probes


def add_fix_as_code_line(finding: Finding, probes: Probes) -> Finding:
    """The finding with its fix as a line of code, where its rule has one."""
    write = LINE_WRITERS.get(finding.rule)
    line = write(probes) if write is not None else None
    return finding if line is None else replace(finding, remedy=line)


def _line_that_sets_pad(probes: Probes) -> str | None:
    """A line of code that sets the pad token; None if no better one is known."""
    better, reason = choose_pad_token(probes.tokenizer, probes.stops)
    return (
        None
        if better is None
        else f"tokenizer.pad_token = {better.token!r}  # {better.id}: {reason}"
    )


def _line_that_sets_padding_side(probes: Probes) -> str:
    """A line of code that sets the padding side."""
    # Padding on the left is right where prompts are continued in batches: the comment keeps that from being undone.
    return "tokenizer.padding_side = 'right'  # for training; 'left' where you generate in batches"


def _line_that_resizes_embedding(probes: Probes) -> str:
    """A line of code that gives the embedding a row for each token."""
    return f"model.resize_token_embeddings({probes.tokenizer.vocabulary})"


def _line_that_sets_stop_tokens(probes: Probes) -> str:
    """A line of code that sets the stop tokens of generation."""
    return f"model.generation_config.eos_token_id = {sorted(stop.id for stop in probes.stops)}"


LINE_WRITERS: dict[str, Callable[[Probes], str | None]] = {
    PadIsStopToken.name(): _line_that_sets_pad,
    PadMissing.name(): _line_that_sets_pad,
    TokenizerPadsOnTheLeft.name(): _line_that_sets_padding_side,
    TokenIdOutsideEmbedding.name(): _line_that_resizes_embedding,
    IdsBeyondTheModel.name(): _line_that_resizes_embedding,
    StopIdsIncomplete.name(): _line_that_sets_stop_tokens,
}
"""By rule, what writes its fix as a line of code; None where no line would do"""
