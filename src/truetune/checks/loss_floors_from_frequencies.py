"""Computes the losses that training data allow to a model that knows only how frequent tokens or
whole answers are.

Rules on data read the same rows beside it, so that they are read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.inspect_tokenized import is_tokenized
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.rule import DataRule, Setup
from truetune.checks.run_data_rules import DataRules
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import (
    retry_without_shortcuts,
    stream_batches,
)
from truetune.logs.run_log import DataFacts
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.count_supervised_tokens import count_supervised_tokens_and_answers
from truetune.tokenized.open_token_cache import open_token_cache


class DataReading(NamedTuple):
    """What was learned from reading the data of a run."""

    facts: DataFacts
    judgement: Judgement


def read_data_for_loss_floor(spec: RunSpec, kinds: Iterable[type[DataRule]] = ()) -> DataReading:
    """Read the data of `spec` once: the losses that they allow, and what rules of these classes
    find in them.

    Raises SpecError, TokenizerError, DataError or TemplateError if the input can't be read.
    """
    kinds = tuple(kinds)
    if len(spec.data) == 1 and is_tokenized(spec.data[0], spec):
        return _read_token_id_rows(spec, kinds)
    return retry_without_shortcuts(
        lambda only_reference: _read_rendered_rows(
            load_tokenizer_and_template(spec, only_reference=only_reference), kinds
        )
    )


def loss_floor_of_data(spec: RunSpec) -> DataFacts:
    """The losses that the data of `spec` allow to a model that knows only frequencies.

    Raises as `read_data_for_loss_floor`.
    """
    return read_data_for_loss_floor(spec).facts


def _read_token_id_rows(spec: RunSpec, kinds: Iterable[type[DataRule]]) -> DataReading:
    """As `read_data_for_loss_floor`, for rows that are token ids already."""
    probes = load_tokenizer_and_template_of_run(spec)
    counts = count_supervised_tokens_and_answers(open_token_cache(spec.data[0]), probes)
    tokenizer = probes.tokenizer
    facts = _loss_floors_from_counts(
        counts.rows, counts.tokens, counts.answers, tokenizer.embedding_rows or tokenizer.vocabulary
    )
    unread = tuple(
        NotJudged(kind.name(), "the rows are token ids, and it reads text", kind.code)
        for kind in kinds
    )
    return DataReading(facts, Judgement((), (), unread))


def _read_rendered_rows(setup: Setup, kinds: Iterable[type[DataRule]]) -> DataReading:
    """As `read_data_for_loss_floor`, for rows that are rendered: one pass over them."""
    spec = setup.spec
    tokens = np.zeros(0, dtype=np.int64)
    answers: Counter[bytes] = Counter()
    rows = 0
    rules = DataRules(kinds, setup)
    stream = read_conversations(spec.data, format=spec.format, columns=spec.map)
    encoder = Encoder(setup.tokenizer.backend, only_reference=setup.probes.only_reference)
    for batch in stream_batches(stream, setup.probes.renderer(), encoder):
        rows += len(batch.rows)
        rules.judge_batch(batch)
        # bincount counts from 0 on: `minlength` keeps the array as long as the one that is added to it.
        counts = np.bincount(batch.ids[batch.supervised], minlength=tokens.size)
        counts[: tokens.size] += tokens
        tokens = counts
        for start, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
            # The bytes of an answer's ids: a dictionary needs a key that can be hashed, and a text would be decoded
            # for it.
            answers[batch.ids[start:end][batch.supervised[start:end]].tobytes()] += 1
    facts = _loss_floors_from_counts(
        rows, tokens, answers, setup.tokenizer.embedding_rows or setup.tokenizer.vocabulary
    )
    return DataReading(facts, rules.judgement())


def _loss_floors_from_counts(
    rows: int, tokens: NDArray[np.int64], answers: Counter[bytes], vocabulary: int
) -> DataFacts:
    """The losses by counts of supervised tokens and of whole answers.

    A model that knows only how frequent tokens are has the entropy of their distribution (`unigram`). One that knows
    all answers, but not which question has which, pays the entropy of the answers once an example, over the tokens.
    """
    examples, supervised = sum(answers.values()), int(tokens.sum())
    whole = np.fromiter(answers.values(), dtype=np.int64, count=len(answers))
    return DataFacts(
        rows=rows,
        examples=examples,
        supervised=supervised,
        unigram=entropy_of_counts_nats(tokens),
        answer=entropy_of_counts_nats(whole) * examples / supervised if supervised else 0.0,
        commonest=float(whole.max() / examples) if examples else 0.0,
        vocabulary=vocabulary,
    )


def entropy_of_counts_nats(counts: NDArray[np.int64]) -> float:
    """The Shannon entropy of a distribution given by counts, in nats."""
    share = counts[counts > 0] / max(1, counts.sum())
    # abs: the sum of negative terms is -0.0 for a single token, and is printed.
    return float(abs((share * np.log(share)).sum()))
