"""Masks that trainers make by other means than the inference contract: which tokens they would supervise.

Two ways are drawn as the trainer would do them: everything behind a marker, and what the template's generation tags
enclose. Where it is not known for certain what a trainer does, there is no mask and not a likely one.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from truetune.checks.reports import TokenView
from truetune.checks.rule import Setup
from truetune.checks.template.evidence.mark_text_inside_generation_tags import (
    CLOSE_MARK,
    OPEN_MARK,
    insert_marks_at_generation_tags,
)
from truetune.errors import TemplateError
from truetune.render.traced_string import plain_text

Mask = NDArray[np.bool_]


class TrainerMasks:
    """The masks that the trainer of a run's settings would make."""

    def __init__(self, setup: Setup) -> None:
        self.spec = setup.spec
        self.by = setup.spec.mask_by
        marker = setup.spec.response_marker or ""
        self.marker = np.array(
            setup.tokenizer.backend.encode(marker, add_special_tokens=False).ids, np.int32
        )
        plain, for_tools = setup.probes.template, setup.probes.tool_template
        self.template = None if plain is None else insert_marks_at_generation_tags(plain)
        self.tool_template = (
            None if for_tools is None else insert_marks_at_generation_tags(for_tools)
        )

    def trainer_mask_if_unlike_contract(self, view: TokenView) -> Mask | None:
        """(tokens,) what the trainer supervises; None where that is the inference contract, or is
        not known.
        """
        if self.by == "response-marker":
            return mask_after_last_marker(self.marker, view.ids)
        return (
            self._mask_by_generation_tags(view)
            if self.by == "generation-tags" and view.example.row.is_chat
            else None
        )

    def _mask_by_generation_tags(self, view: TokenView) -> Mask | None:
        """The mask by generation tags, as transformers makes it: a token is supervised if one of
        its characters is in the tags. None where it can't be known.
        """
        row, rendering = view.example
        # Some tokenizers have a template of their own for rows with tools.
        template = (row.tools and self.tool_template) or self.template
        # Examples of a single turn and pairs are rendered otherwise than transformers renders a
        # conversation.
        if template is None or rendering.turn is not None or row.is_preference:
            return None
        variables = {**self.spec.template_kwargs, **row.template_kwargs}
        try:
            text = template.render(
                row.messages, tools=row.tools, documents=row.documents, **variables
            )
        # The template renders in `check`; with marks in it, it may not. Then nothing is known.
        except (TemplateError, RecursionError):
            return None
        pieces = re.split(f"([{OPEN_MARK}{CLOSE_MARK}])", plain_text(text))
        # The marks may change what the template writes (it may strip or measure its own
        # output): such a mask would lie.
        if "".join(pieces[::2]) != rendering.text:
            return None
        supervised = np.zeros(len(view.ids), np.bool_)
        inside, at = False, 0
        for piece in pieces:
            if piece in (OPEN_MARK, CLOSE_MARK):
                inside = piece == OPEN_MARK
                continue
            if inside and piece:
                first, last = (
                    # The token that holds a character is the last one that begins at or before
                    # it.
                    np.searchsorted(view.starts, [at, at + len(piece) - 1], side="right") - 1
                )
                supervised[first : last + 1] = True
            at += len(piece)
        return supervised


def mask_after_last_marker(marker: NDArray[np.int32], ids: NDArray[np.int32]) -> Mask:
    """All that stands behind the last occurrence of a marker, as TRL's completion-only collator masks."""
    supervised = np.zeros(len(ids), np.bool_)
    # An empty marker would be found everywhere.
    if 0 < len(marker) <= len(ids):
        hits = np.flatnonzero(
            (np.lib.stride_tricks.sliding_window_view(ids, len(marker)) == marker).all(axis=1)
        )
        if len(hits):
            # Of a marker that is not there nothing is supervised, as TRL masks the whole row
            # then.
            supervised[hits[-1] + len(marker) :] = True
    return supervised
