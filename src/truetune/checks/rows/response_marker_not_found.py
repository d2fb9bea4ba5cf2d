"""The response marker that the trainer masks by is not found in the tokens.

## What it does
With a `response_marker`, encodes the marker on its own, as trainers do, and looks for these ids in each row. The marker
of a script (`response_part` of `train_on_responses_only`, `response_template`) counts if the chat template renders the
rows.

## Why it is bad
Text is often split into other tokens inside a row than on its own. Then the marker is not found, the whole row is
masked, and its loss is 0 or NaN. If only a few rows are affected, the log does not show it.

## Example
```yaml
spec: {response_marker: "\\n### Answer: ", append_eos: true}
data:
  - {text: "### Question: is it open?\\n### Answer: it is open."}
```

## Use instead
```yaml
spec: {response_marker: "<|im_start|>assistant\\n"}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
A marker that begins and ends with control tokens or line breaks is encoded the same everywhere. Masking by the chat
template (`assistant_only_loss=True` in TRL) needs no marker.

## References
- huggingface/trl#1820, huggingface/trl#588, unslothai/unsloth#2900, unslothai/unsloth#3198
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class ResponseMarkerNotFound(DataRule):
    code = "ROW012"
    fault = Fault.ANSWER_MARKER_NOT_FOUND
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        marker = setup.spec.response_marker
        self.marker = marker
        encoded = (
            setup.tokenizer.backend.encode(marker, add_special_tokens=False).ids if marker else []
        )
        self.ids = np.array(encoded, dtype=np.int32)
        self.examples = self.split = self.absent = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples of a batch that do not hold the tokens of the marker."""
        if not self.marker or not len(self.ids):
            return
        self.examples += len(batch.examples)
        # Where each id of the marker follows the one before it: one comparison of the whole batch
        # for each id.
        hits = np.ones(max(0, len(batch.ids) - len(self.ids) + 1), dtype=np.bool_)
        for i, id in enumerate(self.ids):
            hits &= batch.ids[i : len(hits) + i] == id
        marker_begins = np.concatenate((hits, np.zeros(len(batch.ids) - len(hits), dtype=np.bool_)))
        for i in np.flatnonzero(batch.count_true_per_example(marker_begins) == 0).tolist():
            found_at = batch.examples[i].rendering.text.find(self.marker)
            there = found_at >= 0
            self.split += there
            self.absent += not there
            if len(self.cases) < MAX_CASES:
                text = (
                    ("the text has the marker, but in other tokens")
                    if there
                    else "the marker is not in the text"
                )
                self.cases.append(case_at_character(batch, i, found_at, text))

    def unmet(self) -> Unmet | None:
        """Unmet where no response marker is named, or there are no examples."""
        if not len(self.ids):
            return Unmet(
                "no response marker is named",
                "name it with --response-marker if the trainer masks by one",
            )
        return None if self.examples else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """How many examples hold the tokens of the marker."""
        return make_count_measurement(
            f"examples that contain the tokens of {self.marker!r}", self.examples, self.examples
        )

    def findings(self) -> Iterator[Finding]:
        if self.split + self.absent:
            tokens = [self.tokenizer.backend.id_to_token(int(id)) for id in self.ids]
            missing, everywhere = self.split + self.absent, self.absent == self.examples
            is_every_one = missing == self.examples
            yield self.finding(
                f"{missing:,} of {self.examples:,} examples do not contain the tokens of the response marker"
                f" {self.marker!r}"
                + (
                    ": every label is masked, so nothing is trained on"
                    if is_every_one
                    else ": all labels of these are masked"
                ),
                "set the marker to what this model's chat template writes before an answer"
                if everywhere
                else (
                    "mask by the chat template instead (assistant_only_loss=True in TRL), or choose a marker that"
                    " begins and ends with a control token or a line break"
                ),
                evidence=[
                    f"on its own the marker is encoded as {tokens}",
                    (
                        f"{self.split:,} examples contain its text in other tokens, {self.absent:,} not at all"
                    ),
                ],
                cases=self.cases,
                count=self.split + self.absent,
                total=self.examples,
            )
