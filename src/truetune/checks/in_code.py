"""Fixes as a line of the script: on live objects there is no file to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from truetune.checks.findings import Finding
from truetune.render.pad_token import choose_pad_token
from truetune.render.probes import Probes


def with_fix_in_code(finding: Finding, probes: Probes) -> Finding:
    """The finding with its fix as a line of code, where its rule has one."""
    write = LINES.get(finding.rule)
    line = write(probes) if write is not None else None
    return finding if line is None else replace(finding, remedy=line)


def _set_pad(probes: Probes) -> str | None:
    better, reason = choose_pad_token(probes.tokenizer, probes.stops)
    return (
        None
        if better is None
        else f"tokenizer.pad_token = {better.token!r}  # {better.id}: {reason}"
    )


def _set_side(probes: Probes) -> str:
    return "tokenizer.padding_side = 'right'  # for training; 'left' where you generate in batches"


def _resize(probes: Probes) -> str:
    return f"model.resize_token_embeddings({probes.tokenizer.vocabulary})"


def _set_stops(probes: Probes) -> str:
    return f"model.generation_config.eos_token_id = {sorted(stop.id for stop in probes.stops)}"


LINES: dict[str, Callable[[Probes], str | None]] = {
    "pad-is-stop-token": _set_pad,
    "pad-missing": _set_pad,
    "padding-side": _set_side,
    "pad-id-outside-embedding": _resize,
    "ids-beyond-the-model": _resize,
    "stop-ids-incomplete": _set_stops,
}
