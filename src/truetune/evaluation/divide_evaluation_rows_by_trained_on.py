"""The rows that a model is measured on, those that it was trained on apart from the others.

A loss on memorised rows looks like skill, so both kinds are encoded and scored, and never averaged together. What was
trained on comes from the record of the run or from files that the user names. The trade-off: where neither is there,
all rows count as fresh, and the report says that it is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

from truetune.data.conversation import Conversation
from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.errors import DataError
from truetune.evaluation.choose_held_out_prompts import HeldOutFilter, read_rows
from truetune.evaluation.held_out_token_losses import EncodedRows, encode_rows_as_trained
from truetune.evaluation.training_overlap import find_training_overlap
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import NoPrompt, PromptMaker, build_prompts, max_positions
from truetune.render.template_probes import Probes

# As many as `try_parser` reads (its MAX_GOLDS): more would be made and thrown away.
MAX_GOLDS = 500
"""Rows that a parser is tried on"""
FileLine = tuple[str, int]
"""File and line"""


@dataclass(frozen=True)
class EvaluationRows:
    """What a model is measured on."""

    read: int
    """Rows that were read"""
    fresh: tuple[Document, ...]
    """Examples of rows that are not known to be trained on; all, where there are no others"""
    known: tuple[Document, ...]
    """Examples of rows that were trained on, where there are others"""
    trained_on: int | None
    """Rows of them all; None where that is not known"""
    first: FileLine | None
    """Of the rows that were trained on"""
    prompts: tuple[Prompt, ...]
    """To be asked, of fresh rows where there are some"""
    golds: tuple[Prompt, ...]
    """A prompt of each row; of some where no training rows are known that they could be compared with"""
    skipped: Mapping[str, int]
    """Why rows were not encoded, and how many"""
    notes: tuple[str, ...]


def load_tokenizer_and_template_of_run(
    model_source: ModelSource, settings: Mapping[str, Any]
) -> Probes:
    """Tokenizer and template as the run encoded its rows; what is longer than the model has positions is too long."""
    recorded = (model_source.run.get("settings") or {}).get("encode") or {}
    # Both decide which tokens there are; a loss on other tokens than in training means nothing.
    kept = {name: recorded[name] for name in ("content_specials", "overflow") if name in recorded}
    probes = model_source.prepared(**{"encode": kept, **settings})
    limits = (probes.spec.max_length, max_positions(probes.tokenizer.model_config))
    longest = min((limit for limit in limits if isinstance(limit, int)), default=None)
    return replace(probes, spec=probes.spec.model_copy(update={"max_length": longest}))


def encode_rows_and_choose_prompts(
    model_source: ModelSource,
    probes: Probes,
    files: Sequence[str],
    answers: int,
    *,
    all_rows: bool,
    trained_on: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
) -> EvaluationRows:
    """The rows of files, encoded, with prompts of some of them.

    Args:
        model_source: the model, with the record of its run.
        probes: its tokenizer and template.
        files: the rows.
        answers: how many prompts are to be asked.
        all_rows: also rows of the run's own data that it did not hold out.
        trained_on: files that the model was trained on, where its run does not tell.
        limit: rows at most.
        seed: of the choice of rows and prompts.

    Raises:
        DataError: no row can be measured.
    """
    held_out = HeldOutFilter.of(model_source.run, files)
    rows = list(held_out.rows(read_rows(probes.spec, files), all_rows=all_rows))
    rows = _draw_rows(rows, limit, seed)
    encoded = _encode_rows(probes, rows, files)
    # With a record of the training every row is compared with it, and needs its prompt.
    max_golds = None if model_source.run or trained_on else MAX_GOLDS
    golds = list(islice(_prompts_of_rows(probes, rows), max_golds))
    trained_rows, notes = _trained_row_numbers_and_notes(model_source, golds, probes, trained_on)
    known = trained_rows or frozenset()
    prompts = _choose_prompts(probes, rows, known, answers, seed)
    notes += _notes_on_missing_or_shortened_rows(held_out, encoded, len(prompts), answers)
    fresh, old = _split_by_trained_on(encoded.documents, known)
    # A row may be several examples, one a turn.
    old_rows = len({document.origin.row for document in old})
    return EvaluationRows(
        read=len(rows),
        # A model that was trained on every row is still measured: the report says on what.
        fresh=fresh or old,
        known=old if fresh else (),
        trained_on=None if trained_rows is None else old_rows,
        first=next(((gold.file, gold.line) for gold in golds if gold.row in known), None),
        prompts=tuple(prompts),
        golds=tuple(golds),
        skipped=encoded.skipped,
        notes=tuple(notes),
    )


def _draw_rows(rows: list[Conversation], limit: int | None, seed: int) -> list[Conversation]:
    """`limit` of the rows at most, in their order."""
    if limit is None or len(rows) <= limit:
        return rows
    # Drawn and not the first: files are often sorted by topic or source.
    return [rows[i] for i in sorted(Random(seed).sample(range(len(rows)), limit))]


def _choose_prompts(
    probes: Probes, rows: Sequence[Conversation], known: frozenset[int], answers: int, seed: int
) -> list[Prompt]:
    """Prompts, of rows that were not trained on where there are some.

    Args:
        probes: tokenizer and template.
        rows: to choose from.
        known: numbers of the rows that were trained on.
        answers: prompts wanted; there are fewer where the rows give no more.
        seed: of the choice.
    """
    if not answers:
        return []
    new = [row for row in rows if row.origin.row not in known]
    return build_prompts(probes.spec, new or rows, answers, seed=seed, seen=not new, probes=probes)


def _encode_rows(probes: Probes, rows: Sequence[Conversation], files: Sequence[str]) -> EncodedRows:
    """The examples of rows. Raises DataError with the reasons where there is none."""
    encoded = encode_rows_as_trained(probes, rows)
    if not encoded.documents:
        reasons = Counter(encoded.skipped).most_common(3)
        why = "; ".join(f"{count:,} times: {reason}" for reason, count in reasons)
        raise DataError(
            f"{', '.join(files)}: no row can be measured ({why or 'all were trained on'})"
        )
    return encoded


def _split_by_trained_on(
    documents: Sequence[Document], known: frozenset[int]
) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """(examples of rows that are not known to be trained on, those of the others)."""
    fresh = tuple(document for document in documents if document.origin.row not in known)
    old = tuple(document for document in documents if document.origin.row in known)
    return fresh, old


def _notes_on_missing_or_shortened_rows(
    held_out: HeldOutFilter, encoded: EncodedRows, prompts: int, answers: int
) -> Iterator[str]:
    """What was left out, shortened, or is fewer than was asked for."""
    if held_out.left_out:
        yield f"{held_out.left_out:,} rows of the run's own data were trained on, and are left out"
    if encoded.shortened:
        yield f"{encoded.shortened:,} examples were shortened to max_length, as in training"
    if prompts < answers:
        yield f"{prompts:,} prompts are asked, not {answers:,}: the rows give no more"


def _trained_row_numbers_and_notes(
    model_source: ModelSource, prompts: Sequence[Prompt], probes: Probes, trained_on: Sequence[str]
) -> tuple[frozenset[int] | None, list[str]]:
    """(the numbers of the rows that were trained on, notes); None where that is not known, and why."""
    overlap = find_training_overlap(model_source, prompts, probes, trained_on)
    if isinstance(overlap, str):
        return None, [f"which rows were trained on is not known: {overlap}"]
    # The numbers of rows and not of prompts: some rows give no prompt, and keep their number.
    # A question that stands in the training with another answer was not trained to be answered so.
    return frozenset(
        prompt.row
        for prompt, match in zip(prompts, overlap.seen, strict=True)
        if match and match.how != "prompt"
    ), []


def _prompts_of_rows(probes: Probes, rows: Sequence[Conversation]) -> Iterator[Prompt]:
    """The prompt of each row that gives one; two rows may have the same."""
    maker = PromptMaker(probes)
    for row in rows:
        # A row that ends with a question, say: it is scored, and has nothing to be asked.
        with suppress(NoPrompt):
            yield maker.make(row)
