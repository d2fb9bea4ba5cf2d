"""The template writes today's date.

## What it does
Renders the same conversation with two different clocks and compares. It is a warning.

## Why it is bad
Every training prompt contains the day of encoding, every serving prompt another one. Caches and runs are not
reproducible, and the model has seen only one date.

## Example
```yaml
files:
  chat_template.jinja: >-
    <|im_start|>system
    Today is {{ strftime_now('%d %b %Y') }}.<|im_end|>
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Most such templates take the date as a variable (`template_kwargs: {date_string: "26 Jul 2024"}`). A fixed date makes
runs reproducible; the model then only knows that date.

## References
- sgl-project/sglang#3296, unslothai/unsloth#881, ggml-org/llama.cpp#12802
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character, first_answer
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS, explain_missing_template
from truetune.checks.rule import DataRule
from truetune.encoding.batch import Batch
from truetune.render.template_probes import ANSWER, QUESTION, alternating_chat

# They differ in each part of a date and a time, so that no format of it looks the same on both.
PROBE_DAYS = (datetime.datetime(2001, 2, 3, 4, 5, 6), datetime.datetime(2030, 11, 12, 13, 14, 15))


class DateInTemplate(DataRule):
    code = "TPL007"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    chats = 0
    first: Batch | None = None
    """Of one chat"""

    def add_batch(self, batch: Batch) -> None:
        """Count the chats, and keep the first one with an answer as a case."""
        self.chats += batch.chats
        answer = first_answer(batch) if self.first is None else None
        if answer is not None:
            self.first = batch.only([answer[0]])

    def unmet(self) -> Unmet | None:
        """Unmet where no row is a chat, or there is no template."""
        return explain_missing_template(self.probes) if self.chats else NO_CHATS

    def measurement_if_clean(self) -> str:
        """That the template writes the same on both probe days."""
        return "the template writes the same on {:%Y-%m-%d} and on {:%Y-%m-%d}".format(*PROBE_DAYS)

    def findings(self) -> Iterator[Finding]:
        if not self.chats:
            return
        early, late = (
            self.probes.at(day).text(alternating_chat(QUESTION, ANSWER)) for day in PROBE_DAYS
        )
        if early is not None and late is not None and early != late:
            # The longest stretch that both share mostly begins with the text: where it ends, the
            # date begins.
            match = difflib.SequenceMatcher(None, early, late, autojunk=False).find_longest_match()
            low = max(0, match.size - 24) if match.a == 0 else 0
            yield self.finding(
                f"the chat template writes today's date into all {self.chats:,} chats: training and serving prompts"
                " differ",
                "set a fixed date with template_kwargs (often date_string; search the template for strftime_now to"
                " see the variable), and serve with the same one",
                evidence=[
                    f"on {day:%Y-%m-%d}: {text[low : match.size + 24]!r}"
                    for day, text in zip(PROBE_DAYS, (early, late), strict=True)
                ],
                cases=self._case_of_first_chat(),
                count=self.chats,
            )

    def _case_of_first_chat(self) -> Iterator[Case]:
        """A case at the place where the first chat becomes another one on another day."""
        if self.first is not None:
            row, rendering = self.first.examples[0]
            early, late = (self.probes.at(day).text(row.messages) or "" for day in PROBE_DAYS)
            at = _position_of_first_difference(early, late)
            # The row may have been rendered with its date fixed by template_kwargs: then it is not
            # told.
            if at and rendering.text.startswith(early[:at]):
                yield case_at_character(
                    self.first, 0, at, repr(rendering.text[max(0, at - 24) : at + 24])
                )


def _position_of_first_difference(one: str, other: str) -> int:
    """The position of the first character in which two texts differ; 0 where one of them only
    continues after the other.
    """
    for i, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return i
    return 0
