"""No limit of length is set, and a few rows are many times as long as the others.

## What it does
Where the settings switch TRL's limit off (`max_length=None`) and do not pack, compares the longest example with the
95th percentile of all lengths.

## Why it is bad
A batch is as wide as its longest row, so that one row decides the memory of the run. It dies of CUDA out of memory
somewhere in the epoch, at another step with each seed, though all other batches are small. Most often such a row
holds what is no text: a picture as base64, a dump of a file, two rows that were joined.

## Example
```yaml
spec: {trained_by: trl, training: {no_length_limit: true}}
data:
  - messages: [{role: user, content: {repeat: 30000, text: "/9j/4AAQ "}}, {role: assistant, content: A scan.}]
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
spec: {trained_by: trl, training: {no_length_limit: true}}
data: {rows: 40, text: "{words}"}
```

## Fix safety
A limit cuts rows: `truetune check DATA --max-length N` counts what is lost. Leaving out a row that is no text is safe.

## References
- huggingface/trl#2400, https://huggingface.co/docs/trl/reducing_memory_usage (truncation)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.needs import NO_EXAMPLE, tokens_not_counted
from truetune.checks.places import in_example
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.media import Media
from truetune.encoding.batch import Batch

TIMES = 10
"""How many times the 95th percentile: long documents among chats are 3 to 6 times as long"""
MIN_LENGTH = 4096
"""Tokens of a row that no GPU has trouble with"""
MIN_EXAMPLES = 20
"""Examples from which on the 95th percentile is not the longest one"""


class OneRowDecidesMemory(DataRule):
    code = "TT098"
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        training = setup.spec.training
        self.is_judged = (
            training.no_length_limit and setup.spec.max_length is None and not training.packing
        )
        self.lengths: list[np.ndarray] = []
        self.long: list[tuple[int, Case]] = []
        self.media = Media()

    def batch(self, batch: Batch) -> None:
        if not self.is_judged:
            return
        self.media += batch.media
        self.lengths.append(np.asarray(batch.lengths))
        for i in np.flatnonzero(batch.lengths >= MIN_LENGTH).tolist():
            length = int(batch.lengths[i])
            self.long.append((length, in_example(batch, i, None, f"{length:,} tokens")))
        self.long = sorted(self.long, key=lambda found: -found[0])[:MAX_CASES]

    def unmet(self) -> Unmet | None:
        if not self.is_judged:
            return Unmet(
                "it is about settings that switch the limit off (max_length=None) and do not pack"
            )
        if sum(map(len, self.lengths)) < MIN_EXAMPLES:
            return (
                NO_EXAMPLE
                if not self.lengths
                else Unmet(f"it is about {MIN_EXAMPLES} examples or more")
            )
        return tokens_not_counted(self.media, asked=False)

    def figure(self) -> Measurement:
        lengths = np.concatenate(self.lengths)
        usual = self._usual(lengths)
        return counted(
            f"examples of more than {TIMES} times the usual length ({usual:,} tokens)",
            int((lengths > TIMES * usual).sum()),
            len(lengths),
        )

    def findings(self) -> Iterator[Finding]:
        lengths = np.concatenate(self.lengths) if self.lengths else np.zeros(0, int)
        if len(lengths) < MIN_EXAMPLES or not self.long:
            return
        usual = self._usual(lengths)
        far = lengths >= max(MIN_LENGTH, TIMES * usual)
        if not far.any():
            return
        yield self.finding(
            f"max_length=None, and {int(far.sum()):,} of {len(lengths):,} examples are many times"
            f" as long as the others: {int(lengths.max()):,} tokens, where 95 % have at most"
            f" {usual:,}",
            "see what these rows hold, and set max_length: the longest row decides the memory of"
            " its batch",
            cases=[case for length, case in self.long if length >= TIMES * usual],
            count=int(far.sum()),
            total=len(lengths),
        )

    @staticmethod
    def _usual(lengths: np.ndarray) -> int:
        return int(np.percentile(lengths, 95))
