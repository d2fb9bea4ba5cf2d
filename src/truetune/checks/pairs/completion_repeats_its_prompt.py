"""Completions begin with their own prompt, so the prompt occurs twice in the training text.

## What it does
Looks at rows of a prompt and one completion (KTO, prompt/completion), as text or as messages. Does the completion begin
with the prompt, or with a rendered turn that contains it? It is an error from 50 % of the rows, and a warning from 10
%.

## Why it is bad
The trainer writes the prompt in front of the completion. The second prompt counts as part of the answer, so the model
learns to repeat each question before it answers.

## Example
```yaml
data:
  - {prompt: "Human: Which day is the market held on?\\n\\nAssistant:", label: true,
     completion: "Human: Which day is the market held on?\\n\\nAssistant: On Friday."}
  - {prompt: "Human: How far is it to the station?\\n\\nAssistant:", label: false,
     completion: "Human: How far is it to the station?\\n\\nAssistant: No idea."}
```

## Use instead
```yaml
data:
  - {prompt: "Human: Which day is the market held on?\\n\\nAssistant:", completion: " On Friday.", label: true}
  - {prompt: "Human: How far is it to the station?\\n\\nAssistant:", completion: " No idea.", label: false}
```

## Fix safety
Cutting the prompt off the completion is safe, unless answers should repeat their question.

## References
- huggingface/trl documentation, "Dataset formats and types"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.generation.prompt_left_in_predictions import is_question_framed_by_template

MIN_CHARACTERS = 16
"""Characters of a prompt that a completion repeats by no chance"""
# Chosen, not measured: an answer that repeats its question is a manner of single rows; a tenth is one of a script.
SHARE = 0.1
MOST = 0.5
"""Shares of the rows from which it is a warning, an error"""
MARKED = re.compile(
    r"(?:<[|｜/]?[\w ]+[|｜]?>|\[/INST\]|#{1,3} ?\w+:?|\b(?:assistant|response|answer):?)\s*$", re.I
)
"""How a prompt ends that a template has written"""
NO_COMPLETION = Unmet("it is about rows of a prompt and a completion; there is none")


class CompletionRepeatsItsPrompt(DataRule):
    code = "PREF025"
    fault = Fault.PAIR_PROMPTS_WRONG
    symptoms = ("garbage-output",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.repeated = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose completion begins with its own prompt."""
        for row in batch.rows:
            # Pairs are pair-prompt-not-shared's.
            if row.rejected is not None or not _has_prompt_apart_from_completion(row):
                continue
            self.rows += 1
            if not _begins_with_own_prompt(row):
                continue
            self.repeated += 1
            if len(self.cases) < MAX_CASES:
                text = f"prompt and completion begin with {_repeated_text(row)!r}"
                self.cases.append(case_in_row(batch, row, text))

    def unmet(self) -> Unmet | None:
        """Unmet without rows of a prompt and one completion."""
        return None if self.rows else NO_COMPLETION

    def measurement_if_clean(self) -> Measurement:
        """How many completions begin with their prompt."""
        return make_count_measurement(
            "completions that begin with their prompt", self.repeated, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        if not self.repeated or self.repeated < SHARE * self.rows:
            return
        yield self.finding(
            f"{self.repeated:,} of {self.rows:,} completions begin with their own prompt: the model learns to repeat"
            " the question",
            "cut the prompt off (completion[len(prompt):]), or drop the prompt column and give only the whole"
            " conversation",
            severity="error" if self.repeated >= MOST * self.rows else "warning",
            cases=self.cases,
            count=self.repeated,
            total=self.rows,
        )


def _has_prompt_apart_from_completion(row: Conversation) -> bool:
    """Does the row give its prompt apart from its completion?"""
    if row.messages:
        return bool(row.prompt_messages) and len(row.messages) > (row.prompt_messages or 0)
    return bool(row.prompt) and row.completion is not None


def _begins_with_own_prompt(row: Conversation) -> bool:
    """Does the completion begin with the prompt?"""
    return _begins_with_prompt_turn(row) if row.messages else _begins_with_prompt_text(row)


def _begins_with_prompt_turn(row: Conversation) -> bool:
    """Does the completion of a chat begin with a turn of its prompt?"""
    cut = row.prompt_messages or 0
    prompt, first = row.messages[:cut], row.messages[cut]
    if first.get("role") not in ("user", "system"):
        return False
    is_asked = any(message.get("role") == "user" for message in prompt)
    return is_asked and first.get("content") in [message.get("content") for message in prompt]


def _begins_with_prompt_text(row: Conversation) -> bool:
    """Does a completion in plain text begin with its prompt, or with a mark of a template and the prompt?"""
    prompt, completion = (row.prompt or "").strip(), (row.completion or "").lstrip()
    if len(prompt) < MIN_CHARACTERS:
        return False
    if completion.startswith(prompt):
        # A bare question may be repeated as a manner of answering; a template's header behind it is none.
        behind = completion[len(prompt) :]
        return MARKED.search(prompt) is not None or is_question_framed_by_template("", behind)
    before, repeated, behind = completion.partition(prompt)
    return bool(repeated) and is_question_framed_by_template(before, behind)


def _repeated_text(row: Conversation) -> str:
    """The beginning of a completion that repeats the prompt."""
    if row.messages:
        return str(row.messages[row.prompt_messages or 0].get("content"))[:60]
    return (row.prompt or "").strip()[:60]
