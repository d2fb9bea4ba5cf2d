"""Prompts ask for tags or a boxed result, and the answers have none.

## What it does
Reads the pairs of tags that a prompt names (`<think>` and `</think>`, `<answer>` and `</answer>`), and `\\boxed` if the
prompt asks for it, and looks for them in the row's answers. Tags around a text of the prompt itself (`<context>`,
`<tools>`) ask for nothing; that text is long, or different in each row. It fires if the prompts of ten rows or more
name a format and 90 % of their answers lack it.

## Why it is bad
The model learns to ignore the instruction: it answers without reasoning and without the tags. A parser that looks for
these tags finds nothing, and in a later reinforcement learning run the format reward starts at 0. Often the prompts
were written for another training stage, or the reasoning was cut off when the answers were cleaned.

## Example
```yaml
data:
  rows: 12
  instruction: "Think between <think> and </think>, then answer between <answer> and </answer>. Q {i}?"
  output: "{words}."
```

## Use instead
```yaml
data:
  rows: 12
  instruction: "Think between <think> and </think>, then answer between <answer> and </answer>. Q {i}?"
  output: "<think>{words_before}.</think><answer>{words}.</answer>"
```

## Fix safety
If the plain answers are what you want, remove the instruction from the prompts: that is safe. Otherwise generate the
answers again in the format that the prompts ask for.

## References
- Liuziyu77/Visual-RFT#219, Applied-Machine-Learning-Lab/ReasonRAG#3
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS

CLOSED_TAG = re.compile(r"</([a-zA-Z][\w-]{1,30})>")
BOXED = "\\boxed"
REASONING_TAGS = ("think", "thinking", "thought", "reasoning")
# Chosen, not measured: below it, the prompts that name a form may be about it.
MIN_ROWS, MIN_LACKING_SHARE = 10, 0.9
MIN_ASKED_SHARE = 0.2
"""Share of the rows whose prompts name the form"""
MAX_FORMS = 50
"""Different forms of which something is kept"""
MAX_TIMES_NAMED = 2
# Chosen: `<think> reasoning process here </think>` has 24; passages, questions and tools between tags have hundreds.
MAX_WORDING = 100
"""Characters between the tags of a form: longer texts are data of the prompt, which it marks by tags"""
MAX_WORDINGS = 20
"""Different texts between the tags of a form that one data set asks for"""
"""Methods that learn no answer of the rows: what stands there is compared with"""


@dataclass
class FormInPrompts:
    """A form that prompts name."""

    asked: int = 0
    """Rows whose prompt names it"""
    lacking: int = 0
    """Rows of these whose answers lack it"""
    wordings: set[str] = field(default_factory=set)
    """What prompts have between its tags, as far as it is kept"""
    cases: list[Case] = field(default_factory=list)

    def add(self, wording: str, *, lacks_form: bool) -> None:
        """Count a row whose prompt names the form."""
        self.asked += 1
        self.lacking += lacks_form
        if len(self.wordings) <= MAX_WORDINGS:
            self.wordings.add(wording)

    @property
    def do_tags_mark_prompt_data(self) -> bool:
        """Are other texts between the tags in each prompt? Then they mark its data, and ask for nothing."""
        return len(self.wordings) > min(MAX_WORDINGS, max(1, self.asked // 2))


class AnswersLackTheFormAskedFor(DataRule):
    code = "ROW075"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.forms: dict[str, FormInPrompts] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose prompts ask for a form, and whose answers lack it."""
        if self.setup.spec.training.method in SAMPLES_ITS_ANSWERS:
            return
        for row in batch.rows:
            answers = [answer.text for answer in learned_answers_of_row(row)]
            if (
                not answers
                or (not row.is_chat and row.completion is None)
                or _is_chat_prompt_without_completion(row)
            ):
                continue
            self.rows += 1
            for form, wording in sorted(_forms_in_prompt(text_besides_answers(row)).items()):
                seen = self._counts_of_form(form)
                if seen is None:
                    continue
                lacks_form = not _has_form(form, answers, row)
                seen.add(wording, lacks_form=lacks_form)
                if lacks_form and len(seen.cases) < MAX_CASES:
                    seen.cases.append(case_in_row(batch, row, f"the answer has no {form}"))

    def _counts_of_form(self, form: str) -> FormInPrompts | None:
        """The counts of a form, which begin with its first row; None where too many forms are counted."""
        if form not in self.forms and len(self.forms) >= MAX_FORMS:
            return None
        return self.forms.setdefault(form, FormInPrompts())

    def unmet(self) -> Unmet | None:
        """Unmet where no prompt asks for a form."""
        method = self.setup.spec.training.method
        if method in SAMPLES_ITS_ANSWERS:
            return Unmet(f"it is about answers that are learned, and {method} samples its own")
        if self._forms_asked_for():
            return None
        return Unmet("it is about prompts that name tags or \\boxed, and none does")

    def measurement_if_clean(self) -> Measurement:
        """How many answers lack the form that most prompts ask for."""
        asked = self._forms_asked_for()
        form = max(asked, key=lambda one: (asked[one].lacking, asked[one].asked), default="")
        seen = asked.get(form, FormInPrompts())
        return make_count_measurement(
            f"answers without {form or 'the form that their prompt asks for'}",
            seen.lacking,
            seen.asked,
        )

    def _forms_asked_for(self) -> dict[str, FormInPrompts]:
        """The forms that prompts ask for, in the order of the alphabet, without tags around their own data."""
        return {
            form: seen
            for form, seen in sorted(self.forms.items())
            if not seen.do_tags_mark_prompt_data
        }

    def findings(self) -> Iterator[Finding]:
        lacking = {
            form: seen
            for form, seen in self._forms_asked_for().items()
            if self._do_answers_lack_form(seen)
        }
        if not lacking:
            return
        form, seen = max(lacking.items(), key=lambda one: one[1].lacking)
        yield self.finding(
            f"prompts ask for {', '.join(lacking)}, but {seen.lacking:,} of {seen.asked:,} answers have no {form}:"
            " the model learns to ignore the instruction",
            f"put {form} into the answers, or remove the instruction from the prompts, both in training and in"
            " serving",
            cases=seen.cases,
            count=seen.lacking,
            total=seen.asked,
        )

    def _do_answers_lack_form(self, seen: FormInPrompts) -> bool:
        """Do nearly all answers lack a form that enough prompts ask for?"""
        is_asked = seen.asked >= MIN_ROWS and seen.asked >= MIN_ASKED_SHARE * self.rows
        return is_asked and seen.lacking >= MIN_LACKING_SHARE * seen.asked


def _is_chat_prompt_without_completion(row: Conversation) -> bool:
    """Is a row a chat's prompt without a completion, as trainers take it that sample their answers?"""
    raw = row.raw or {}
    return isinstance(raw.get("prompt"), list) and "completion" not in raw


def _forms_in_prompt(prompt: str) -> dict[str, str]:
    """The forms that a prompt names -> what it has between their tags; none of tags around a text of its own."""
    forms: dict[str, str] = {}
    for name in set(CLOSED_TAG.findall(prompt)):
        between = re.findall(rf"<{re.escape(name)}>(.*?)</{re.escape(name)}>", prompt, re.S)
        # A prompt that holds the tag several times shows examples or data in markup.
        is_named = between and prompt.count(f"</{name}>") <= MAX_TIMES_NAMED
        if is_named and all(len(text) <= MAX_WORDING for text in between):
            forms[f"<{name}>"] = "|".join(between)
    if 0 < prompt.count(BOXED) <= MAX_TIMES_NAMED:
        forms[BOXED] = ""
    return forms


def _has_form(form: str, answers: list[str], row: Conversation) -> bool:
    """Has one of the answers a form, or the message a field that the template writes so?"""
    if any(form in text for text in answers):
        return True
    # The prompt may end with the opening tag, and the answer hold the closing one alone.
    closing = form.replace("<", "</", 1)
    if form.startswith("<") and any(closing in text for text in answers):
        return True
    is_reasoning = form.strip("<>") in REASONING_TAGS
    return is_reasoning and any(message.get("reasoning_content") for message in row.messages)
