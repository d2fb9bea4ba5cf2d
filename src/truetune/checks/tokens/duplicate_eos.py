"""Examples end with two stop tokens.

## What it does
Counts the examples in which a second supervised stop token follows the one that ends the last answer, with nothing but
white space in between.

## Why it is bad
The model learns to continue after the stop token. If the first one ends generation, the second is wasted. If it does
not, extra tokens follow every answer, and conversations of several turns break.

## Example
```yaml
spec: {append_eos: true}
data:
  - {text: "<|im_start|>user\\nOpen?<|im_end|>\\n<|im_start|>assistant\\nIt is.<|im_end|>\\n"}
```

## Use instead
```yaml
data:
  - {text: "<|im_start|>user\\nOpen?<|im_end|>\\n<|im_start|>assistant\\nIt is.<|im_end|>\\n"}
```

## Fix safety
Safe: give the trainer the messages, or stop it from appending EOS to text whose turns already end with it.

## References
- huggingface/trl#3318, huggingface/trl#4481, huggingface/trl#4908, unslothai/unsloth#3228
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE, NO_STOPS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch


class DuplicateEos(DataRule):
    code = "LEN002"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.stops = np.array([stop.id for stop in setup.probes.stops], dtype=np.int32)
        self.examples = self.double = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples, and those that end in two stop tokens with at most white space
        between.
        """
        self.examples += len(batch.examples)
        # Only the last two stop tokens of each example can be its end. They are found for all
        # examples at once: `places` is sorted, so the last one before an example's end lies just
        # before where that end would be put in.
        places = np.flatnonzero(np.isin(batch.ids, self.stops))
        ends = batch.offsets[1:]
        last = np.searchsorted(places, ends) - 1
        for i in np.flatnonzero(last >= 1).tolist():
            end = int(last[i])
            if self._are_written_by_template(batch, i, places[end - 1 : end + 1].tolist()):
                # The turn's own may still follow another one.
                end -= 1
            if end < 1:
                continue
            one, two = places[end - 1 : end + 1].tolist()
            if one < batch.offsets[i]:  # the other one ends the example before
                continue
            rendering = batch.examples[i].rendering
            between = rendering.text[_end_position_of_token(batch, i, one) : batch.starts[two]]
            following = int(places[end + 1]) if end < last[i] else None
            after = rendering.text[
                _end_position_of_token(batch, i, two) : None
                if following is None
                else batch.starts[following]
            ]
            # A template may write a second one that nobody learns. White space between them is no
            # text: some templates end turns with a stop token and a line end, behind which the
            # trainer appends its own.
            both = batch.supervised[one] and batch.supervised[two]
            if both and not between.strip() and not after.strip():
                self.double += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(
                        case_at_token(
                            batch, two, f"ends with {rendering.text[batch.starts[one] :][:60]!r}"
                        )
                    )

    def _are_written_by_template(self, batch: Batch, example: int, places: list[int]) -> bool:
        """Does the template itself end a chat with the two tokens at these places, a turn's and the chat's own?

        Phi-3's and its likes do: the model was made with both, and stops at either.
        """
        one, two = (int(batch.ids[place]) for place in places)
        is_from_template = batch.examples[example].rendering.template is not None
        own = self.setup.probes.control_ids_after_last_answer
        return is_from_template and one != two and (one, two) == own[-2:]

    def unmet(self) -> Unmet | None:
        """Unmet where no stop token is known, or there is no example."""
        if not len(self.stops):
            return NO_STOPS
        return None if self.examples else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """The number of examples that end in two stop tokens."""
        return make_count_measurement(
            "examples that end in two stop tokens", self.double, self.examples
        )

    def findings(self) -> Iterator[Finding]:
        if self.double:
            yield self.finding(
                f"{self.double:,} of {self.examples:,} examples end with two stop tokens: the model learns to"
                " continue after the first",
                "give the trainer the messages instead of rendered text; or remove the stop token at the end of"
                " each text, since the trainer appends one",
                cases=self.cases,
                count=self.double,
                total=self.examples,
            )


def _end_position_of_token(batch: Batch, example: int, place: int) -> int:
    """The place after the last character of a token in its example's text."""
    following = place + 1
    if following < batch.offsets[example + 1]:
        return int(batch.starts[following])
    return len(batch.examples[example].rendering.text)
