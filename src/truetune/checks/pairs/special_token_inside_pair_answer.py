"""An answer of a preference pair contains a BOS or stop token.

## What it does
Looks for a BOS token in either answer, and for a stop token that is followed by more text of the same answer. In chats
it also looks for control tokens in the contents of the rejected side (`special-token-in-content` checks the chosen
one).

## Why it is bad
Answers that were encoded on their own, or that contain a whole rendered chat, have a BOS in the middle: the model
learns broken beginnings. What follows a stop token teaches the model to continue after the end.

## Example
```yaml
data:
  - {prompt: "Is it open?", chosen: " It is.<|im_end|> And so on.", rejected: " Who knows?<|im_end|>"}
```

## Use instead
```yaml
data:
  - {prompt: "Is it open?", chosen: " It is.<|im_end|>", rejected: " Who knows?<|im_end|>"}
```

## Fix safety
Give the trainer messages instead of rendered text; it writes BOS and stop tokens itself. Cutting an answer at its first
stop token is safe.

## References
- axolotl-ai-cloud/axolotl#1616, huggingface/trl#1073, huggingface/trl#1025, allenai/reward-bench#90
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token, side_of_pair_name
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CONTROL_TOKENS
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import IS_CONTENT

SIDES = ("chosen", "rejected")


class SpecialTokenInsidePairAnswer(PairRule):
    code = "PREF006"
    fault = Fault.CONTROL_TOKENS_IN_ROWS
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        bos = setup.tokenizer.special.get("bos")
        self.bos = bos.id if bos else None
        self.stops = {stop.id for stop in setup.probes.stops}
        self.wanted = np.array(sorted(setup.tokenizer.control), dtype=np.int32)
        self.control = tuple(
            filter(None, map(setup.tokenizer.backend.id_to_token, setup.tokenizer.control))
        )
        self.rows = set[int]()
        self.found: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the BOS, stop and control tokens inside the answers of a batch's pairs."""
        if batch.pairs is None:
            return
        self.pairs += len(batch.pairs.chosen.examples)
        for name, side in zip(SIDES, batch.pairs, strict=True):
            for place in np.flatnonzero(
                np.isin(side.ids, self.wanted) & IS_CONTENT[side.source]
            ).tolist():
                self._count_misplaced_control_token(name, side, place)

    def _count_misplaced_control_token(self, name: str, side: Batch, place: int) -> None:
        """Count a control token that stands in the text of an answer, where it is out of place."""
        i = int(np.searchsorted(side.offsets, place, side="right")) - 1
        row, rendering = side.examples[i]
        inside = place - int(side.offsets[i] + side.contexts[i])  # below 0: in the prompt
        last = place + 1 == side.offsets[i + 1]
        behind = "" if last else rendering.text[int(side.starts[place + 1]) :].strip()
        # The template ends turns of chats itself: a control token in their contents is always out
        # of place, and that of the chosen side is told by special-token-in-content.
        wrong = (
            name == "rejected"
            if row.is_chat
            else self._is_control_token_misplaced(int(side.ids[place]), inside == 0, behind)
        )
        if inside < 0 or not wrong:
            return
        self.found[
            f"{self.tokenizer.backend.id_to_token(int(side.ids[place]))} in the {name} side"
        ] += 1
        if row.origin.row not in self.rows and len(self.cases) < MAX_CASES:
            at = int(side.starts[place])
            text = f"{name}: {rendering.text[max(0, at - 20) : at + 40]!r}"
            self.cases.append(case_at_token(side, place, text, side_of_pair_name(name)))
        self.rows.add(row.origin.row)

    def _is_control_token_misplaced(self, token: int, first: bool, behind: str) -> bool:
        """Is a control token of an answer in plain text out of place? `behind` is the text that follows it."""
        # Where BOS and EOS are one token (GPT-2), it may end an answer, and is wrong only as its
        # first token.
        if token == self.bos and (first or token not in self.stops):
            return True
        # Further control tokens behind a stop token are its continuation: <|im_end|><|endoftext|>.
        return token in self.stops and bool(behind) and not behind.startswith(self.control)

    def unmet(self) -> Unmet | None:
        """Also unmet where the tokenizer has no such token."""
        return super().unmet() if len(self.wanted) else NO_CONTROL_TOKENS

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have a BOS, stop or control token inside an answer."""
        return make_count_measurement(
            "pairs with a BOS, stop or control token inside an answer", len(self.rows), self.pairs
        )

    def findings(self) -> Iterator[Finding]:
        if self.rows:
            yield self.finding(
                f"{len(self.rows):,} of {self.pairs:,} pairs contain a BOS, stop or control token inside an answer:"
                " the model learns broken beginnings, or to continue after the end",
                "give the trainer messages instead of rendered text, or cut each answer at its first stop token and"
                " remove BOS from the answers",
                evidence=[f"{what}: {count:,} times" for what, count in self.found.most_common(5)],
                cases=self.cases,
                count=len(self.rows),
                total=self.pairs,
            )
