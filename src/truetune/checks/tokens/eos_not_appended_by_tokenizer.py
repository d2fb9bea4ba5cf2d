"""Plain text rows end without a stop token, and the tokenizer adds none.

## What it does
Counts the plain text rows (text, or prompt and completion as strings) whose last token is not a stop token after
tokenization.

## Why it is bad
A model that never sees the end of an answer never ends one. Its loss looks the same as that of a healthy run.

## Example
```yaml
data:
  - {text: "Question: is it open? Answer: it is open."}
```

## Use instead
```yaml
spec: {append_eos: true}
data:
  - {text: "Question: is it open? Answer: it is open."}
```

## Fix safety
TRL appends EOS to rows of text and to completions: then pass `--trainer trl`, and change nothing. Most fast tokenizers
ignore `add_eos_token`; writing the EOS token at the end of the text always works.

## References
- huggingface/transformers#22794, huggingface/transformers#23833, huggingface/trl#1623, huggingface/trl#3091
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_PLAIN_ROWS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class EosNotAppendedByTokenizer(DataRule):
    code = "LEN001"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    symptoms = ("never-stops",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.stops = np.array([stop.id for stop in setup.probes.stops], dtype=np.int32)
        self.is_known_what_is_appended = setup.trainer.appends_eos.value is not None
        """Else pairs of plain text are left alone: preference trainers append EOS to both answers (TRL's do)"""
        self.rows = self.open = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of plain text, and those that end without a stop token, white space left
        aside.
        """
        for i, (row, rendering) in enumerate(batch.examples):
            if (
                row.is_chat
                or not rendering.text
                or (row.is_preference and not self.is_known_what_is_appended)
            ):
                continue
            ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]]
            self.rows += 1
            # Tokens of white space at the end are passed over: a line end behind the stop token
            # does no harm.
            tail = len(ids) - 1
            while tail >= 0 and rendering.text[batch.starts[batch.offsets[i] + tail] :].isspace():
                tail -= 1
            if tail < 0 or ids[tail] not in self.stops:
                self.open += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(
                        case_in_example(
                            batch, i, len(ids) - 1, f"ends with {rendering.text[-40:]!r}"
                        )
                    )

    def unmet(self) -> Unmet | None:
        """Unmet where no row is plain text."""
        return None if self.rows else NO_PLAIN_ROWS

    def measurement_if_clean(self) -> Measurement:
        """The number of rows of plain text that end with a stop token."""
        return make_count_measurement(
            "rows of plain text that end with a stop token", self.rows - self.open, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.open:
            eos = self.tokenizer.special.get("eos")
            known = self.is_known_what_is_appended
            by_itself = (
                ""
                if known
                else (
                    "; if your trainer does that itself, give its name with --trainer (TRL does, transformers'"
                    " Trainer does not)"
                )
            )
            appends = f"{self.setup.trainer.name_in_reports} appends none to such rows"
            effect = (
                ": the model won't learn to stop"
                if known
                else "; unless the trainer appends one, the model won't learn to stop"
            )
            yield self.finding(
                f"{self.open:,} of {self.rows:,} rows of plain text end without a stop token{effect}",
                f"end each text with {eos.token if eos else 'the EOS token'}{by_itself}",
                evidence=[
                    "this tokenizer adds no EOS",
                    *([appends] if known else []),
                ],
                cases=self.cases,
                count=self.open,
                total=self.rows,
            )
