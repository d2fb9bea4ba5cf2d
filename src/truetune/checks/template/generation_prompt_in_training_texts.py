"""Training texts end with the header of another answer.

## What it does
Renders a question and its answer as in training (`add_generation_prompt=False`) and looks for the header of an answer
after the last turn: text that the template does not write there if the user's next turn follows. It counts the rows
that end with it in the loss.

## Why it is bad
A chat template that writes the generation prompt without being asked ends each training text with an empty answer. The
model learns to open another turn after each of its own: answers run on with `assistant` again and again wherever
nothing stops them. It also breaks tools that continue a chat.

## Example
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}<|im_start|>assistant
spec: {learn: {what: all}}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
files:
  chat_template.jinja: >-
    {% for m in messages %}<|im_start|>{{ m.role }}
    {{ m.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}
spec: {learn: {what: all}}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Safe: prompts stay as they are where a server asks for the generation prompt, as all do by default.

## References
- huggingface/transformers#32252, meta-llama/llama3#104
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_character
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_TURNS, explain_missing_template
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch
from truetune.render.template_probes import ANSWER, QUESTION, Probes, alternating_chat

NEXT_QUESTION = "Who keeps its lamp?"


class GenerationPromptInTrainingTexts(DataRule):
    code = "TPL018"
    fault = Fault.ROWS_CHANGED_BY_TEMPLATE
    symptoms = ("never-stops", "garbage-output")
    severity = "warning"
    # LLaMA-Factory writes turns with templates of its own, and these end with the answer.
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.header = find_header_behind_last_answer(setup.probes)
        self.answered = self.faulty = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the chats that end with an answer, and those with a further header in the loss."""
        for i, (row, rendering) in enumerate(batch.examples):
            if not row.is_chat or not rendering.turns:
                continue
            last = rendering.turns[-1]
            self.answered += 1
            at = rendering.text.rfind(self.header) if self.header else -1
            if at < max(last.end, last.start, 0) or not _is_learned(batch, i, at):
                continue
            self.faulty += 1
            if len(self.cases) < MAX_CASES:
                text = f"ends with {rendering.text[-60:]!r}"
                self.cases.append(case_at_character(batch, i, at, text, last.message))

    def unmet(self) -> Unmet | None:
        """Unmet without chats that hold an answer, or without a template."""
        return explain_missing_template(self.probes) if self.answered else NO_TURNS

    def measurement_if_clean(self) -> Measurement:
        """The number of chats with a further header in the loss."""
        return make_count_measurement(
            "chats with the header of another answer at their end", self.faulty, self.answered
        )

    def findings(self) -> Iterator[Finding]:
        if not self.faulty:
            return
        yield self.finding(
            f"{self.faulty:,} of {self.answered:,} chats end with the header of another answer, and it is in the loss:"
            " the chat template writes the generation prompt without being asked",
            f"in the chat template, put the end that writes {self.header!r} into {{% if add_generation_prompt %}} ..."
            " {% endif %}",
            cases=self.cases,
            count=self.faulty,
            total=self.answered,
        )


def find_header_behind_last_answer(probes: Probes) -> str:
    """The header of an answer that a template writes behind the last turn, though it is not asked for one.

    Templates write other text there as well (EOS at the end of a chat, a line break), and some have no headers. So it
    is text that the next turn of the user would not follow, and that stands in front of the answer too. Empty where
    there is none.
    """
    asked = probes.text(alternating_chat(QUESTION, ANSWER))
    asked_again = probes.text(alternating_chat(QUESTION, ANSWER, NEXT_QUESTION))
    if asked is None or asked_again is None:
        return ""
    if not all(text in asked for text in (QUESTION, ANSWER)) or ANSWER not in asked_again:
        return ""
    before_answer = asked[asked.index(QUESTION) + len(QUESTION) : asked.index(ANSWER)].rstrip()
    behind = asked[asked.index(ANSWER) + len(ANSWER) :].rstrip()
    followed = asked_again[asked_again.index(ANSWER) + len(ANSWER) :]
    pairs = zip(behind, followed, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    only_at_end = behind[common:].strip()
    is_header = any(map(str.isalnum, only_at_end)) and before_answer.endswith(only_at_end)
    return only_at_end if is_header else ""


def _is_learned(batch: Batch, i: int, character: int) -> bool:
    """Is the token that holds a character of an example's text in the loss?"""
    begin, end = batch.offsets[i], batch.offsets[i + 1]
    following = begin + batch.starts[begin:end].searchsorted(character, side="right")
    return bool(following > begin and batch.supervised[following - 1])
