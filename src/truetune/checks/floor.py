"""The losses that training data allow: of a model that knows only how frequent tokens or whole answers are."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from truetune.checks.rule import Setup
from truetune.checks.run import prepare
from truetune.data.rows import read
from truetune.encoding.encoder import Encoder
from truetune.encoding.stream import batches, with_proof
from truetune.logs.log import DataFacts
from truetune.spec.run import RunSpec


def floor_of(spec: RunSpec) -> DataFacts:
    """Read the data of `spec` and say what losses they allow.

    Raises SpecError, TokenizerError, DataError or TemplateError where the input itself can't be read.
    """
    return with_proof(lambda only_reference: _floor_of(prepare(spec, only_reference=only_reference)))


def _floor_of(setup: Setup) -> DataFacts:
    spec = setup.spec
    tokens = np.zeros(0, dtype=np.int64)
    answers: Counter[bytes] = Counter()
    rows = 0
    stream = read(spec.data, format=spec.format, columns=spec.map)
    encoder = Encoder(setup.tokenizer.backend, only_reference=setup.probes.only_reference)
    for batch in batches(stream, setup.probes.renderer(), encoder):
        rows += len(batch.rows)
        counts = np.bincount(batch.ids[batch.supervised], minlength=tokens.size)
        counts[: tokens.size] += tokens
        tokens = counts
        for start, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
            answers[batch.ids[start:end][batch.supervised[start:end]].tobytes()] += 1
    examples, supervised = sum(answers.values()), int(tokens.sum())
    whole = np.fromiter(answers.values(), dtype=np.int64, count=len(answers))
    return DataFacts(
        rows=rows,
        examples=examples,
        supervised=supervised,
        unigram=entropy(tokens),
        answer=entropy(whole) * examples / supervised if supervised else 0.0,
        commonest=float(whole.max() / examples) if examples else 0.0,
        vocabulary=setup.tokenizer.embedding_rows or setup.tokenizer.vocabulary,
    )


def entropy(counts: NDArray[np.int64]) -> float:
    """Of a distribution given by counts, in nats (Shannon 1948)."""
    share = counts[counts > 0] / max(1, counts.sum())
    return float(-(share * np.log(share)).sum())
