"""Preference pairs have two equal sides, or sides with different prompts.

## What it does
Compares chosen and rejected of each pair in the real batches, after truncation: equal ids teach nothing, and different
prompts are not a pair. It is an error from 10 % of the pairs on, else a warning.

## Why it is bad
A pair with equal sides has a gradient of zero: long answers that begin alike become equal when they are cut off at the
limit. With two prompts, the model learns the preference from the difference of the questions.

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
There is no automatic fix: raise `max_length` (more memory), or remove these pairs.

## References

- OpenRLHF/OpenRLHF#1311, huggingface/trl#5826
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Audit
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_PAIRS
from truetune.checks.rule import BatchRule
from truetune.probe.run_record import Arrays

# Chosen, not measured: some pairs become equal at any limit; from a tenth on, the limit is too low
# for these data.
ERROR_SHARE = 0.1
"""Share of the pairs from which it is an error"""


METHODS_WITH_PAIRS = ("dpo", "orpo", "reward", "cpo", "simpo")


class Pair(NamedTuple):
    """One pair of a batch: (tokens,) each, without padding."""

    place: str
    chosen: NDArray[np.int64]
    chosen_answer: NDArray[np.bool_]
    """Is the token part of the answer? All where the batch does not say."""
    rejected: NDArray[np.int64]
    rejected_answer: NDArray[np.bool_]


def pairs_in_batches(audit: Audit) -> Iterator[Pair]:
    """The pairs of all batches: chosen and rejected under names of their own, or in the two halves of input_ids."""
    answers = _answers_by_line(audit) if audit.kind == "reward" else {}
    for record in audit.records:
        for number, batch in enumerate(record.batches):
            chosen, rejected = (
                _ids_and_answer_mask_of_side_lines(batch, "chosen_"),
                _ids_and_answer_mask_of_side_lines(batch, "rejected_"),
            )
            # TRL's collators stack both sides: the first half of the lines is chosen, the second
            # rejected.
            if not chosen and audit.kind in METHODS_WITH_PAIRS:
                whole = [
                    (ids, answers.get((record.facts["rank"], number, line), mask))
                    for line, (ids, mask) in enumerate(
                        _ids_and_answer_mask_of_side_lines(batch, "")
                    )
                ]
                chosen, rejected = whole[: len(whole) // 2], whole[len(whole) // 2 :]
            for line, (one, other) in enumerate(zip(chosen, rejected, strict=False)):
                yield Pair(f"batch {number}, pair {line}", *one, *other)


def _answers_by_line(audit: Audit) -> dict[tuple[int, int, int], NDArray[np.bool_]]:
    """(tokens,) of an answer, without padding, by rank, batch and line: a reward model's batches hold no mask of them.

    Its lines are whole chats, told apart by the template. What comes before the first answer is the prompt: sides may
    part at an earlier answer than the last.
    """
    return {
        (sample.rank, sample.batch, sample.line): sample.expected[sample.attended]
        for sample in audit.samples
        if sample.expected is not None and sample.expected.any()
    }


def _ids_and_answer_mask_of_side_lines(
    batch: Arrays, prefix: str
) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """(ids, is it of the answer?) of each line of one side, without padding; none where the batch has no such keys."""
    ids = batch.get(f"{prefix}input_ids")
    if ids is None or ids.ndim != 2:
        return []
    kept = batch.get(f"{prefix}attention_mask", np.ones_like(ids)) != 0
    answer = np.ones(ids.shape, np.bool_)
    if f"{prefix}completion_mask" in batch:
        answer = batch[f"{prefix}completion_mask"] != 0
    elif f"{prefix}labels" in batch and batch[f"{prefix}labels"].shape == ids.shape:
        answer = batch[f"{prefix}labels"] != -100
    return [(ids[i][kept[i]].astype(np.int64), answer[i][kept[i]]) for i in range(len(ids))]


class PairSidesEqualOrPromptsDiffer(BatchRule):
    code = "BAT034"
    fault = Fault.PAIRS_WITHOUT_CONTRAST
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        every = list(pairs_in_batches(self.subject))
        same = [pair for pair in every if np.array_equal(pair.chosen, pair.rejected)]
        if same:
            yield self.finding(
                f"{len(same)} of {len(every)} pairs in the batches are the same on both sides, so they teach nothing",
                "raise max_length if they were cut off, and remove pairs without a difference",
                severity="error" if len(same) >= ERROR_SHARE * len(every) else "warning",
                cases=[Case(f"{pair.place}: {len(pair.chosen)} equal tokens") for pair in same],
                count=len(same),
                total=len(every),
            )
        differ = [pair for pair in every if _prompts_differ(pair)]
        if differ:
            yield self.finding(
                f"{len(differ)} of {len(every)} pairs in the batches have different prompts on"
                " their two sides",
                "give chosen and rejected of each pair the same prompt",
                severity="error" if len(differ) >= ERROR_SHARE * len(every) else "warning",
                cases=[
                    Case(
                        f"{pair.place}: prompts of {_prompt_length(pair.chosen_answer)} and"
                        f" {_prompt_length(pair.rejected_answer)} tokens"
                    )
                    for pair in differ
                ],
                count=len(differ),
                total=len(every),
            )

    def unmet(self) -> Unmet | None:
        return super().unmet() or (
            None if any(True for _ in pairs_in_batches(self.subject)) else NO_PAIRS
        )

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have the same two sides, or two prompts."""
        every = sum(1 for _ in pairs_in_batches(self.subject))
        return make_count_measurement("pairs with the same two sides, or two prompts", 0, every)


def _prompt_length(answer: np.ndarray) -> int:
    """Tokens before the answer; all where none is left of it."""
    return int(np.argmax(answer)) if answer.any() else len(answer)


def _prompts_differ(pair: Pair) -> bool:
    """Do the two sides have different prompts?

    They are compared from their end: a limit may have cut their start.
    """
    one = pair.chosen[: _prompt_length(pair.chosen_answer)]
    other = pair.rejected[: _prompt_length(pair.rejected_answer)]
    both = min(len(one), len(other))
    return both > 0 and not np.array_equal(one[-both:], other[-both:])
