"""The chosen and rejected answers of a pair are the same.

## What it does
Compares the tokens of both answers of each pair, as they are and after the trainer has cut them at `max_length` (1,024
tokens if none is set, TRL's default for DPO). Answers with the same words but other spaces or line breaks count too,
unless they contain code. It is an error from 50 % of the pairs, a warning from 1 %, and an info below.

## Why it is bad
Both sides have the same probability whatever the model does: the loss stays at ln 2 = 0.6931 and the gradient is zero.
A few such pairs waste part of each batch. Trainers keep them silently.

## Example
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: It is.}]}
  - {prompt: [{role: user, content: "When?"}],
     chosen: [{role: assistant, content: At nine.}], rejected: [{role: assistant, content: Never.}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "When?"}],
     chosen: [{role: assistant, content: At nine.}], rejected: [{role: assistant, content: Never.}]}
```

## Fix safety
Dropping identical pairs loses nothing: they have no gradient. If the difference comes after the cut, a higher
`max_length` restores it, at the cost of memory.

## References
- OpenRLHF/OpenRLHF#1311, huggingface/trl#5826, huggingface/trl#6321
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_at_answer
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import (
    completion_ids,
    cut_completion,
    pair_length_limit,
    pair_texts,
)
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.settings.run_spec import Severity

# LLaMA-Factory's two sets of pairs have 12 % and 0.7 %, all by the cut at 1,024 tokens. At 0.005
# the second would warn; where half of the pairs are, a column was mapped twice or the limit cuts
# off what differs.
ERROR_SHARE, WARNING_SHARE = 0.5, 0.01
"""Share of the pairs from which it is an error, a warning"""
FENCE = "```"
"""What code stands in, in which spaces mean something"""


def _differ_by_spaces(row: Conversation | None) -> bool:
    """Do the two answers of a pair hold the same words, and other spaces between them?"""
    if row is None:
        return False
    texts = pair_texts(row)
    lines = texts.chosen.splitlines()
    # In code, spaces mean something; it is known by its fence or its indents.
    if FENCE in texts.chosen or any(line.startswith((" ", "\t")) for line in lines):
        return False
    words = texts.chosen.split()
    return bool(words) and words == texts.rejected.split()


class PreferencePairsIdentical(PairRule):
    code = "PREF001"
    fault = Fault.PAIRS_WITHOUT_CONTRAST
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.limit = pair_length_limit(setup.spec, setup.trainer)
        self.same = self.cut = self.spaced = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch with the same answer on both sides, as they stand or as they are cut."""
        if batch.pairs is None:
            return
        chosen, rejected = batch.pairs
        self.pairs += len(chosen.examples)
        contexts = zip(chosen.contexts.tolist(), rejected.contexts.tolist(), strict=True)
        sides = zip(completion_ids(chosen), completion_ids(rejected), contexts, strict=True)
        for i, (good, bad, (before, behind)) in enumerate(sides):
            left = cut_completion(good, before, self.limit)
            left_of_bad = cut_completion(bad, behind, self.limit)
            # With a limit of the run's own, pairs of which nothing is left are
            # truncation-leaves-no-label's.
            is_judged = len(left) > 0 or self.spec.max_length is None
            if good.tobytes() == bad.tobytes():
                self.same += 1
                text = "both answers are the same"
            elif is_judged and left.tobytes() == left_of_bad.tobytes():
                self.cut += 1
                text = f"the prompt fills the limit: {before:,} tokens; no answer is kept"
                if len(left):
                    text = f"the first {len(left):,} tokens of both answers are the same, and the rest is cut off"
            elif _differ_by_spaces(chosen.rows[i] if chosen.rows else None):
                self.spaced += 1
                text = "the two answers differ only in spaces and line breaks"
            else:
                continue
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_at_answer(chosen, i, text))

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have the same answer on both sides."""
        same = self.same + self.cut + self.spaced
        return make_count_measurement("pairs with the same answer on both sides", same, self.pairs)

    def findings(self) -> Iterator[Finding]:
        count = self.same + self.cut + self.spaced
        if not count:
            return
        severity: Severity = "info"
        if count >= WARNING_SHARE * self.pairs:
            severity = "error" if count >= ERROR_SHARE * self.pairs else "warning"
        cut = f", {self.cut:,} of them once cut at {self.limit.text}," if self.cut else ""
        yield self.finding(
            f"{count:,} of {self.pairs:,} pairs have the same answer on both sides{cut} and teach nothing: their"
            " gradient is zero",
            self._remedy_for_identical(),
            severity=severity,
            evidence=self._evidence_by_reason(),
            cases=self.cases,
            count=count,
            total=self.pairs,
        )

    def _evidence_by_reason(self) -> list[str]:
        """How many pairs are the same, by what makes them so."""
        lines = [f"{self.same:,} ({self.same / self.pairs:.1%}) are identical"]
        if self.spaced:
            share = self.spaced / self.pairs
            lines.append(f"{self.spaced:,} ({share:.1%}) differ only in spaces and line breaks")
        if self.cut:
            share = self.cut / self.pairs
            lines.append(
                f"{self.cut:,} ({share:.1%}) become the same when cut at {self.limit.text}"
            )
        return lines

    def _remedy_for_identical(self) -> str:
        """What to do first: where most are the same because of the cut, the limit is the cause."""
        if self.cut > self.same + self.spaced:
            return "raise max_length so that their difference is kept, or drop these pairs"
        if self.same + self.spaced >= ERROR_SHARE * self.pairs:
            # Too few are left to train on, so that the program which wrote them has to be fixed.
            return (
                "drop these pairs, and correct the script that writes the two answers: it may use one column for"
                " both, change one object in place, or generate both answers without sampling"
            )
        if self.cut:
            return "drop these pairs, or raise max_length so that their difference is kept"
        return "drop these pairs"
