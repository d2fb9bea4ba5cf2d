"""Neighbouring rows come from one source.

## What it does
Compares the words that neighbouring rows share with what rows at random share (MinHash over tokens).

## Why it is bad
Read in file order (streams, `shuffle=False`, packing before shuffling), batches hold one document or one task at a
time: the loss moves in steps, and what came last weighs most.

## Example
```yaml
data: {grouped: 120}
```

## Use instead
```yaml
data: {shuffled: 120}
```

## Fix safety
Shuffling the file once, with a fixed seed, is safe. Trainers that shuffle a map-style data set do it anyway.

## References
- huggingface/datasets#7854, huggingface/datasets#8565, lucidrains/DALLE-pytorch#230
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.rule import DataRule, Setup
from truetune.checks.similar import Grown
from truetune.encoding.batch import Batch

FEWEST = 100
MORE = 0.08
"""How much more of their words neighbours must share than rows at random."""
SIGMAS = 5.0


class RowsGroupedBySource(DataRule):
    code = "TT306"
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.words = Grown()

    def batch(self, batch: Batch) -> None:
        self.words.add(batch.fingerprints.words)

    def findings(self) -> Iterator[Finding]:
        words = self.words.whole()
        if len(words) < FEWEST:
            return
        order = np.random.default_rng(0).permutation(len(words))
        near = (words[1:] == words[:-1]).mean(axis=1)
        random = (words[order[1:]] == words[order[:-1]]).mean(axis=1)
        difference = float(near.mean() - random.mean())
        error = float(np.sqrt((near.var() + random.var()) / len(near)))
        if difference > MORE and difference > SIGMAS * error:
            yield self.finding(
                f"neighbouring rows share {near.mean():.0%} of their words, rows at random {random.mean():.0%}: "
                "the file is grouped by source",
                "shuffle the rows once, or make sure that the trainer shuffles (a stream only shuffles its buffer)",
                evidence=[
                    f"{len(words):,} rows; the difference is {difference / max(error, 1e-9):.0f} standard errors"
                ],
                total=len(words),
            )
