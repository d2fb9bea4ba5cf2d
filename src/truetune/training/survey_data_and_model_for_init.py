"""Surveys a run's data and model for `truetune init`, before anything is chosen.

The first rows are read and encoded, and config.json is read. A sample and not all: the answer shall be there in
seconds, and the number of rows is then an estimate, said as one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch as batch_of
from truetune.errors import SpecError, TruetuneError
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec
from truetune.training.read_model_shape import ModelShape, read_model_shape

# Chosen, not measured: the 95th percentile of 1,000 lengths is off by about 1.4 points of
# percentile (binomial). Twice as many take twice the seconds of `init`.
MAX_ROWS_SURVEYED = 1000
"""Rows that are looked at"""
# Chosen, not measured: one answer of ten without a number is a slip of the data; a reward by numbers pays it nothing.
MIN_NUMBER_SHARE = 0.9
"""Share of the answers that have to end in a number for a reward that compares numbers"""
MAX_SHORT_ANSWER_CHARACTERS = 60
"""An answer of more is prose, which no model writes word for word"""
ENDS_IN_NUMBER = re.compile(r"\d[^\w\s]{0,3}\s{0,3}$")
AnswerKind = Literal["numbers", "short", "texts"]


@dataclass(frozen=True, slots=True)
class ExampleLengths:
    """How many tokens the examples of the sample have."""

    examples: int
    mean: float
    most: int
    """95 of 100 examples have at most so many."""
    longest: int


@dataclass(frozen=True, slots=True)
class DataSurvey:
    """What was found of the data and the model."""

    format: str | None
    """Of the first row"""
    rows: int
    """An estimate, where there are more than were looked at"""
    exact: bool
    lengths: ExampleLengths | None
    """None where the tokenizer could not be read, or nothing was encoded"""
    shape: ModelShape | None
    """None where config.json could not be read"""
    notes: tuple[str, ...]
    """What could not be looked at, and why"""
    answers: AnswerKind | None = None
    """What the last answers of most rows are; None where the rows hold none"""


def survey_data_and_model_config(spec: RunSpec) -> DataSurvey:
    """Survey the first rows of `data`, and the model's config.json. Raises DataError."""
    rows, count, exact = _first_rows_count_and_if_counted(spec)
    notes: list[str] = []
    lengths = _result_or_note_of_failure(
        lambda: _measure_example_lengths(spec, rows), "the lengths of the examples", notes
    )
    shape = _result_or_note_of_failure(
        lambda: read_model_shape(spec), "the size of the model", notes
    )
    return DataSurvey(
        rows[0].format if rows else None,
        count,
        exact,
        lengths,
        shape,
        tuple(notes),
        _kind_of_answers(rows),
    )


def _kind_of_answers(rows: list[Conversation]) -> AnswerKind | None:
    """What the last answers of the rows are, by what most of them end in and how long they are."""
    answers = [
        row.messages[-1]["content"]
        for row in rows
        if row.messages and row.messages[-1].get("role") == "assistant"
    ]
    texts = [answer.strip() for answer in answers if isinstance(answer, str) and answer.strip()]
    if not texts:
        return None
    numbers = sum(ENDS_IN_NUMBER.search(text) is not None for text in texts)
    if numbers >= MIN_NUMBER_SHARE * len(texts):
        return "numbers"
    short = sum(len(text) <= MAX_SHORT_ANSWER_CHARACTERS for text in texts)
    return "short" if 2 * short >= len(texts) else "texts"


def _first_rows_count_and_if_counted(spec: RunSpec) -> tuple[list[Conversation], int, bool]:
    """The first rows, how many there are, and whether that is counted rather than estimated."""
    progress = [0, 0, 1]

    # The reader tells bytes, not rows: the number of rows in the file is estimated from the share
    # of bytes that the sample took.
    def listen(rows: int, done: int, total: int) -> None:
        progress[:] = rows, done, total

    source = read_conversations(spec.data, format=spec.format, columns=spec.map, progress=listen)
    rows = list(islice(source, MAX_ROWS_SURVEYED))
    if len(rows) < MAX_ROWS_SURVEYED or next(source, None) is None:
        return rows, len(rows), True
    seen, done, total = progress
    return rows, math.ceil(seen * total / max(done, 1)), False


def _measure_example_lengths(spec: RunSpec, rows: list[Conversation]) -> ExampleLengths:
    """How many tokens the examples of the rows have; of a pair the longer side counts."""
    # The exact path alone: proving the fast one costs more than it saves on so few rows.
    ready = replace(load_tokenizer_and_template_of_run(spec), only_reference=True)
    batch = batch_of(rows, ready.renderer(), Encoder(ready.tokenizer.backend, only_reference=True))
    if not batch.examples:
        raise SpecError(f"none of {len(rows):,} rows can be rendered: {batch.rejected[0].reason}")
    tokens = batch.lengths
    if batch.pairs is not None:
        tokens = np.maximum(batch.pairs.chosen.lengths, batch.pairs.rejected.lengths)
    return ExampleLengths(
        len(tokens), float(tokens.mean()), int(np.quantile(tokens, 0.95)), int(tokens.max())
    )


def _result_or_note_of_failure(inspect: Callable[[], Any], what: str, notes: list[str]) -> Any:
    """What a step of the survey gives; None and a note where it fails, for the rest of the survey
    still helps.
    """
    try:
        return inspect()
    except TruetuneError as error:
        notes.append(f"{what}: not known ({error})")
        return None
