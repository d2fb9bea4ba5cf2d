"""Answers close a reasoning block that was never opened: `</think>` without `<think>`.

## What it does
Looks in answers for the end of a reasoning block (`</think>`, `</thinking>`, `</reasoning>`, `</thought>`) without its
beginning. It does not fire if the template writes the beginning, by itself or in its generation prompt, if the prompt
of a plain row ends with it, or if chats have no template. It fires from 3 answers that are at least 1 % of the rows.

## Why it is bad
Reasoning models are served with templates that put `<think>` into the prompt, so their completions contain only the
end. Trained with another template, the model learns to reason without the opening tag. The reasoning parsers of vLLM
and SGLang then find no reasoning, and users see all of it as the answer.

## Example
```yaml
data:
  - {messages: [{role: user, content: "2 + 2?"}, {role: assistant, content: "Two and two.\\n</think>\\n4"}]}
  - {messages: [{role: user, content: "3 + 2?"}, {role: assistant, content: "Three and two.\\n</think>\\n5"}]}
  - {messages: [{role: user, content: "4 + 2?"}, {role: assistant, content: "Four and two.\\n</think>\\n6"}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "2 + 2?"}, {role: assistant, content: "<think>\\nTwo and two.\\n</think>\\n4"}]}
  - {messages: [{role: user, content: "3 + 2?"}, {role: assistant, content: "<think>\\nThree and two.\\n</think>\\n5"}]}
  - {messages: [{role: user, content: "4 + 2?"}, {role: assistant, content: "<think>\\nFour and two.\\n</think>\\n6"}]}
```

## Fix safety
Putting the opening tag in front is right if the whole text before the closing tag is the reasoning, as in completions
of such a model. Read a few rows first.

## References
- vllm-project/vllm#13125, deepseek-ai/DeepSeek-R1#526
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import AnswerFault, AnswerText, AnswerTextRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.data.conversation import Conversation
from truetune.render.template_probes import alternating_chat

TAGS = ("think", "thinking", "reasoning", "thought")
QUESTION, REASONING, ANSWER = "What is it?", "Let me see.", "It is four."
"""Of a probe, which shows whether the template opens what an answer closes"""
MIN_ROWS, ONE_IN = 3, 100
"""Single answers may speak about such tags. Chosen: where it is a fault of the source, nearly all answers have it"""


class ReasoningIsNeverOpened(AnswerTextRule):
    code = "ROW082"
    fault = Fault.REASONING_TRAINED_IN_ANOTHER_FORM
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_for = "a reasoning block that is closed but not opened"
    by_trainer = (SeverityByFact("template", {"own": MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._tags_left_closed = frozenset(tag for tag in TAGS if self._does_template_not_open(tag))

    def _does_template_not_open(self, tag: str) -> bool:
        """Does the template leave an answer that ends its reasoning as it is, without a beginning?"""
        opening = f"<{tag}>"
        answer = f"{REASONING}\n</{tag}>\n{ANSWER}"
        trained = self.probes.text(alternating_chat(QUESTION, answer))
        prompt = self.probes.text(alternating_chat(QUESTION), add_generation_prompt=True)
        if trained is None or prompt is None:
            return False
        return opening not in trained and not prompt.rstrip().endswith(opening)

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The end of a thinking part that has no beginning."""
        for tag in TAGS:
            before, end, _ = answer.text.partition(f"</{tag}>")
            opening = f"<{tag}>"
            if not end or opening in before:
                continue
            is_open = (row.prompt or "").rstrip().endswith(opening)
            is_left_closed = tag in self._tags_left_closed if row.is_chat else not is_open
            if is_left_closed and row.text is None:
                return AnswerFault(
                    end, f"the answer begins {before[:60]!r}, and closes its reasoning with {end}"
                )
        return None

    def findings(self) -> Iterator[Finding]:
        """The finding on answers that close what nothing opened."""
        if self.found < MIN_ROWS or self.found * ONE_IN < self.rows:
            return
        end = self.kinds.most_common(1)[0][0]
        opening = end.replace("/", "")
        yield self.finding(
            f"{self.faulty_row_count_in_words} have an answer with {end} but no {opening} before it, so that parsers"
            " take the reasoning for the answer",
            f"put {opening} in front of these answers, or train with a chat template whose generation prompt ends"
            " with it",
            cases=self.cases,
            count=self.found,
            total=self.rows,
        )
