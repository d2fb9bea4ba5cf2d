"""Pairs whose two sides are the same, or answer different prompts.

## What it does

Compares chosen and rejected of each pair in the real batches, after all cutting: equal ids teach nothing, and different
prompts are no pair.

## Why it is bad

A pair of equal sides has a gradient of zero: cut at the limit, long answers with a common start become equal. With two
prompts, the preference is learned from the difference of the questions.

## Example

```python
data = pairs()
for row in data:
    row["rejected"][0]["content"] = row["chosen"][0]["content"]
run = dpo(data)
```

## Use instead

```python
run = dpo(pairs())
```

## Fix safety

There is no automatic fix: raise the limit, or leave these pairs out.

## References

- OpenRLHF/OpenRLHF#1311, huggingface/trl#5826
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.batch.lines import Pair, pairs
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.needs import NO_PAIRS
from truetune.checks.rule import BatchRule

MANY = 0.1


class PairSidesNotComparable(BatchRule):
    code = "BAT034"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        every = list(pairs(self.subject))
        same = [pair for pair in every if np.array_equal(pair.chosen, pair.rejected)]
        if same:
            yield self.finding(
                f"{len(same)} of {len(every)} pairs of the batches are the same on both sides",
                "raise the length limit where they were cut, and leave out pairs without a"
                " difference",
                severity="error" if len(same) >= MANY * len(every) else "warning",
                cases=[Case(f"{pair.place}: {len(pair.chosen)} equal tokens") for pair in same],
                count=len(same),
                total=len(every),
            )
        differ = [pair for pair in every if _prompts_differ(pair)]
        if differ:
            yield self.finding(
                f"{len(differ)} of {len(every)} pairs of the batches have different prompts on"
                " their two sides",
                "give both sides the same prompt",
                severity="error" if len(differ) >= MANY * len(every) else "warning",
                cases=[
                    Case(
                        f"{pair.place}: {_length(pair.chosen_answer)} and"
                        f" {_length(pair.rejected_answer)} tokens of prompt"
                    )
                    for pair in differ
                ],
                count=len(differ),
                total=len(every),
            )

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if any(True for _ in pairs(self.subject)) else NO_PAIRS)

    def figure(self) -> Measurement:
        every = sum(1 for _ in pairs(self.subject))
        return counted("pairs with the same two sides, or two prompts", 0, every)


def _length(answer: np.ndarray) -> int:
    return int(np.argmax(answer)) if answer.any() else len(answer)


def _prompts_differ(pair: Pair) -> bool:
    """Compared from their end: a limit may have cut their start."""
    one = pair.chosen[: _length(pair.chosen_answer)]
    other = pair.rejected[: _length(pair.rejected_answer)]
    both = min(len(one), len(other))
    return both > 0 and not np.array_equal(one[-both:], other[-both:])
