"""No max_length is set, and examples are longer than the trainer's default.

## What it does
Where the run sets no `max_length`, it counts the examples over 1,024 tokens, TRL's default.

## Why it is bad
TRL cuts them at 1,024 without a word: answers end in the middle of a sentence, without their stop token.

## Example
```yaml
data:
  - messages:
      - {role: user, content: Count.}
      - {role: assistant, content: {repeat: 700, text: "and one "}}
```

## Use instead
```yaml
spec: {max_length: 4096}
data:
  - messages:
      - {role: user, content: Count.}
      - {role: assistant, content: {repeat: 700, text: "and one "}}
```

## Fix safety
Setting `max_length` to the longest example costs memory for that batch; dropping the longest rows costs those rows.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, huggingface/alignment-handbook#32
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Case, Finding
from truetune.checks.places import in_example
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

DEFAULT = 1024


class SftMaxLengthDefault1024(DataRule):
    code = "TT405"
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.examples = self.over = self.lost = self.longest = 0
        self.cases: list[Case] = []

    def batch(self, batch: Batch) -> None:
        if self.spec.max_length is not None:
            return
        lengths = batch.lengths
        self.examples += len(lengths)
        for i in np.flatnonzero(lengths > DEFAULT).tolist():
            self.over += 1
            self.longest = max(self.longest, int(lengths[i]))
            self.lost += int(batch.supervised[batch.offsets[i] + DEFAULT : batch.offsets[i + 1]].sum())
            if len(self.cases) < MAX_CASES:
                self.cases.append(in_example(batch, i, DEFAULT, f"{lengths[i]:,} tokens"))

    def findings(self) -> Iterator[Finding]:
        if self.over:
            yield self.finding(
                f"{self.over:,} of {self.examples:,} examples are longer than {DEFAULT:,} tokens, and no max_length is "
                "set: TRL cuts at its default",
                f"set max_length in the trainer and here (the longest example has {self.longest:,} tokens)",
                evidence=[f"{self.lost:,} supervised tokens lie behind the cut"],
                cases=self.cases,
                count=self.over,
                total=self.examples,
            )
