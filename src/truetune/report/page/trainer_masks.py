"""Masks that trainers make by other means than the inference contract: which tokens they would supervise."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from truetune.checks.report import TokenView
from truetune.checks.rule import Setup
from truetune.checks.template.generation_tags_off_the_turn import CLOSE, CLOSES, OPEN, OPENS
from truetune.errors import TemplateError
from truetune.render.template import Template
from truetune.render.traced_string import parts

Mask = NDArray[np.bool_]


class TrainerMasks:
    """Of the settings of a run."""

    def __init__(self, setup: Setup) -> None:
        self.spec = setup.spec
        self.by = setup.spec.mask_by
        marker = setup.spec.response_marker or ""
        self.marker = np.array(
            setup.tokenizer.backend.encode(marker, add_special_tokens=False).ids, np.int32
        )
        self.template, self.tool_template = (
            _mark_generation_tags(setup.probes.template),
            _mark_generation_tags(setup.probes.tool_template),
        )

    def of(self, view: TokenView) -> Mask | None:
        """(tokens,) what the trainer supervises; None where that is the contract, or is not known."""
        if self.by == "response-marker":
            return mask_after_marker(self.marker, view.ids)
        return (
            self._tagged(view)
            if self.by == "generation-tags" and view.example.row.is_chat
            else None
        )

    def _tagged(self, view: TokenView) -> Mask | None:
        """As transformers does: a token is supervised if one of its characters stands in the tags."""
        row, rendering = view.example
        template = (row.tools and self.tool_template) or self.template
        if template is None or rendering.turn is not None or row.is_preference:
            return None
        variables = {**self.spec.template_kwargs, **row.template_kwargs}
        try:
            text = template.render(
                row.messages, tools=row.tools, documents=row.documents, **variables
            )
        except (TemplateError, RecursionError):
            return None
        pieces = re.split(f"([{OPEN}{CLOSE}])", "".join(parts(text)))
        if "".join(pieces[::2]) != rendering.text:
            return None
        supervised = np.zeros(len(view.ids), np.bool_)
        inside, at = False, 0
        for piece in pieces:
            if piece in (OPEN, CLOSE):
                inside = piece == OPEN
                continue
            if inside and piece:
                first, last = (
                    np.searchsorted(view.starts, [at, at + len(piece) - 1], side="right") - 1
                )
                supervised[first : last + 1] = True
            at += len(piece)
        return supervised


def mask_after_marker(marker: NDArray[np.int32], ids: NDArray[np.int32]) -> Mask:
    """All that stands behind the last occurrence of a marker, as TRL's completion-only collator masks."""
    supervised = np.zeros(len(ids), np.bool_)
    if 0 < len(marker) <= len(ids):
        hits = np.flatnonzero(
            (np.lib.stride_tricks.sliding_window_view(ids, len(marker)) == marker).all(axis=1)
        )
        if len(hits):
            supervised[hits[-1] + len(marker) :] = True
    return supervised


def _mark_generation_tags(template: Template | None) -> Template | None:
    """The template with marks where its generation tags open and close."""
    if template is None:
        return None
    source = OPENS.sub(lambda tag: f"{tag[0]}{{{{ '{OPEN}' {tag[1]}}}}}", template.source)
    source = CLOSES.sub(lambda tag: f"{{{{{tag[1]} '{CLOSE}' }}}}{tag[0]}", source)
    return Template(source, template.special)
