"""Apart: the rows that a model is measured on, those that it was trained on apart from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

from truetune.data.conversation import Conversation
from truetune.encoding.documents import Document
from truetune.errors import DataError
from truetune.evaluation.choose_prompts import Trained, rows_of
from truetune.evaluation.row_losses import held_out
from truetune.evaluation.training_overlap import seen_rows
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import NoPrompt, PromptMaker, build_prompts, max_positions
from truetune.render.probes import Probes

GOLDS = 500
"""Rows that a parser is tried on"""
Where = tuple[str, int]
"""File and line"""


@dataclass(frozen=True)
class Rows:
    """What is measured."""

    read: int
    fresh: tuple[Document, ...]
    """Examples of rows that are not known to be trained on; all, where there are no others"""
    known: tuple[Document, ...]
    """Examples of rows that were trained on, where there are others"""
    trained_on: int | None
    """Rows of them all; None where that is not known"""
    first: Where | None
    """Of the rows that were trained on"""
    prompts: tuple[Prompt, ...]
    """To be asked, of fresh rows where there are some"""
    golds: tuple[Prompt, ...]
    """A prompt of each row; of some where no training rows are known that they could be compared with"""
    skipped: Mapping[str, int]
    notes: tuple[str, ...]


def prepared(place: ModelSource, settings: Mapping[str, Any]) -> Probes:
    """As the run encoded its rows; what is longer than the model has places for is too long."""
    recorded = (place.run.get("settings") or {}).get("encode") or {}
    kept = {name: recorded[name] for name in ("content_specials", "overflow") if name in recorded}
    probes = place.prepared(**{"encode": kept, **settings})
    limits = (probes.spec.max_length, max_positions(probes.tokenizer.model_config))
    longest = min((limit for limit in limits if isinstance(limit, int)), default=None)
    return replace(probes, spec=probes.spec.model_copy(update={"max_length": longest}))


def rows_apart(
    place: ModelSource,
    probes: Probes,
    files: Sequence[str],
    answers: int,
    *,
    all_rows: bool,
    trained_on: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
) -> Rows:
    """The rows of files, of the run's own without `all_rows` only those that it held out; `limit` of them at most.

    Raises DataError where no row can be measured.
    """
    trained = Trained.of(place.run, files)
    found = list(trained.rows(rows_of(probes.spec, files), all_rows=all_rows))
    if limit is not None and len(found) > limit:
        found = [found[i] for i in sorted(Random(seed).sample(range(len(found)), limit))]
    held = held_out(probes, found)
    if not held.documents:
        why = "; ".join(
            f"{count:,} times: {reason}" for reason, count in Counter(held.skipped).most_common(3)
        )
        raise DataError(
            f"{', '.join(files)}: no row can be measured ({why or 'all were trained on'})"
        )
    golds = list(islice(_golds(probes, found), None if place.run or trained_on else GOLDS))
    told, notes = _known(place, golds, probes, trained_on)
    known = told or frozenset()
    fresh = [document for document in held.documents if document.origin.row not in known]
    old = [document for document in held.documents if document.origin.row in known]
    prompts: list[Prompt] = []
    if answers:
        new = [row for row in found if row.origin.row not in known]
        prompts = build_prompts(
            probes.spec, new or found, answers, seed=seed, seen=not new, probes=probes
        )
    if trained.left_out:
        notes.append(
            f"{trained.left_out:,} rows of the run's own data were trained on, and are left out"
        )
    if held.shortened:
        notes.append(f"{held.shortened:,} examples were shortened to max_length, as in training")
    if len(prompts) < answers:
        notes.append(f"{len(prompts):,} prompts are asked, not {answers:,}: the rows give no more")
    return Rows(
        read=len(found),
        fresh=tuple(fresh or old),
        known=tuple(old if fresh else ()),
        trained_on=None if told is None else len({document.origin.row for document in old}),
        first=next(((gold.file, gold.line) for gold in golds if gold.row in known), None),
        prompts=tuple(prompts),
        golds=tuple(golds),
        skipped=held.skipped,
        notes=tuple(notes),
    )


def _known(
    place: ModelSource, prompts: Sequence[Prompt], probes: Probes, trained_on: Sequence[str]
) -> tuple[frozenset[int] | None, list[str]]:
    """The numbers of the rows that were trained on; None where that is not known, and why."""
    leaks = seen_rows(place, prompts, probes, trained_on)
    if isinstance(leaks, str):
        return None, [f"which rows were trained on is not known: {leaks}"]
    pairs = zip(prompts, leaks.seen, strict=True)
    return frozenset(prompt.row for prompt, seen in pairs if seen and seen.how != "prompt"), []


def _golds(probes: Probes, rows: Sequence[Conversation]) -> Iterator[Prompt]:
    """The prompt of each row that gives one; two rows may have the same."""
    maker = PromptMaker(probes)
    for row in rows:
        with suppress(NoPrompt):
            yield maker.make(row)
