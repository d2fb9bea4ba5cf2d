"""Roles, keys or variables of a row contain control tokens.

## What it does
Looks for control tokens (such as `<|im_end|>`) in what a template writes besides contents: roles, names of tools and of
their arguments, keys, and the row's template variables.

## Why it is bad
There they can't be separated from the template's own: they forge turns, and no mask is reliable for such a row.
`truetune encode` rejects it.

## Example
```yaml
data:
  - messages:
      - {role: "user<|im_end|>", content: "Is it open?"}
      - {role: assistant, content: It is.}
```

## Use instead
```yaml
data:
  - messages:
      - {role: user, content: "Is it open?"}
      - {role: assistant, content: It is.}
```

## Fix safety
No role, tool or key has a control token in its name: such rows are broken or hostile, and dropping them is safe.

## References
- huggingface/transformers#29279, huggingface/transformers#47822, google-deepmind/gemma#770
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import (
    case_at_character,
    first_character_of_message,
    index_of_last_example,
)
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CONTROL_TOKENS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.find_forged_tokens_in_keys_and_roles import find_first_forged_control_token
from truetune.encoding.split_at_added_tokens import pattern_of_longest_word


class SpecialTokenInStructure(DataRule):
    code = "ROW014"
    fault = Fault.CONTROL_TOKENS_IN_ROWS
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        tokens = sorted(
            str(setup.tokenizer.backend.id_to_token(id)) for id in setup.tokenizer.control
        )
        # "(?!)" matches nothing: a tokenizer without control tokens has none to forge.
        self.controls = re.compile(pattern_of_longest_word(tokens) if tokens else "(?!)")
        self.rows = self.odd = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch with control tokens in roles, keys or variables."""
        self.rows += len(batch.rows)
        for row in batch.rows:
            forged = find_first_forged_control_token(row, self.controls)
            if forged:
                self.odd += 1
                if len(self.cases) < MAX_CASES:
                    self.cases.append(self._case_at_role(batch, row, forged))

    def _case_at_role(self, batch: Batch, row: Conversation, text: str) -> Case:
        """A case at the control token, if it is in a role: at the last such role before what is
        left of its message.

        Else a case of the row.
        """
        i = index_of_last_example(batch, row)
        for number, message in enumerate(row.messages if i is not None else ()):
            role = str(message.get("role"))
            match = self.controls.search(role)
            if (
                i is not None
                and match
                and text.endswith(f"{match[0]} is in messages[{number}].role")
            ):
                end = max(first_character_of_message(batch, i, number), 0)
                at = batch.examples[i].rendering.text.rfind(role, 0, end)
                return case_at_character(batch, i, at + match.start() if at >= 0 else -1, text)
        return Case(text, row.origin)

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer has no control tokens."""
        return None if self.setup.tokenizer.control else NO_CONTROL_TOKENS

    def measurement_if_clean(self) -> Measurement:
        """How many rows have control tokens in roles, keys or variables."""
        return make_count_measurement(
            "rows with control tokens in roles, keys or variables", self.odd, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.odd:
            yield self.finding(
                f"{self.odd:,} of {self.rows:,} rows contain control tokens in roles, keys or variables, which forge"
                " turns",
                "drop these rows (`truetune encode --on-error skip` leaves them out and counts them)",
                cases=self.cases,
                count=self.odd,
                total=self.rows,
            )
