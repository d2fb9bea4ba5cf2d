"""A token spans the boundary between prompt and answer.

## What it does
Looks at the boundary where the loss begins: whether one token contains the last characters of the prompt and the first
of the answer. The prompt on its own is then encoded into other tokens.

## Why it is bad
At inference, generation starts from the tokens of the prompt on its own, which training never showed. Masks that count
the prompt's tokens are off by one: the first letters of the answer are masked, or lost.

## Example
```yaml
spec: {append_eos: true, ignore: [plain-string-pair-skips-template]}
data:
  - {prompt: "The answer isn", completion: "'t known to us, and the wait"}
  - {prompt: "Is it open? ", completion: " it is open"}
  - {prompt: "I wai", completion: "ted for the order"}
  - {prompt: "The ord", completion: "er has been sent"}
```

## Use instead
```yaml
spec: {append_eos: true, ignore: [plain-string-pair-skips-template]}
data:
  - {prompt: "Is it open?\\n", completion: "It is open."}
```

## Fix safety
Put the space at the beginning of the answer and not at the end of the prompt, or end prompts with a line break or a
control token. Use the same prompt format when you serve the model.

## References
- huggingface/trl#5213, huggingface/trl#2209, lm-sys/FastChat#2996, lm-sys/FastChat#3061
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class BoundaryTokenMerge(DataRule):
    code = "ROW011"
    fault = Fault.PROMPT_ANSWER_BORDER_UNCLEAN
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.borders = self.merged = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the borders between prompt and answer of a batch that lie inside a token."""
        for i, (_, rendering) in enumerate(batch.examples):
            starts = batch.starts[batch.offsets[i] : batch.offsets[i + 1]]
            for span in rendering.spans:
                if (
                    not 0 < span.start < len(rendering.text)
                ):  # no border: the example is all prompt, or all answer
                    continue
                self.borders += 1
                at = int(np.searchsorted(starts, span.start))
                if at >= len(starts) or starts[at] != span.start:
                    self.merged += 1
                    if len(self.cases) < MAX_CASES and at:
                        end = int(starts[at]) if at < len(starts) else len(rendering.text)
                        token = rendering.text[int(starts[at - 1]) : end]
                        self.cases.append(
                            case_in_example(
                                batch,
                                i,
                                at - 1,
                                f"the token {token!r} spans the prompt/completion boundary",
                            )
                        )

    def unmet(self) -> Unmet | None:
        """Unmet where no answer follows a prompt."""
        return (
            None
            if self.borders
            else Unmet("it is about answers that follow a prompt, and there are none")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many answers begin inside a token of their prompt."""
        return make_count_measurement(
            "answers that begin inside a token of their prompt", self.merged, self.borders
        )

    def findings(self) -> Iterator[Finding]:
        if self.merged:
            yield self.finding(
                f"{self.merged:,} of {self.borders:,} answers begin inside a token of their prompt",
                "move the space from the end of the prompt to the beginning of the answer, or end prompts with a"
                " line break",
                cases=self.cases,
                count=self.merged,
                total=self.borders,
            )
