"""Answers begin or end with white space.

## What it does
Counts the answers with white space at either end that reaches the training text; some templates strip contents. It
fires from 5 % of the rows, as an info. Plain text, and completions that begin with one space, are ignored: that is how
they join a prompt.

## Why it is bad
The model learns to begin with a line break or to end with several, depending on where the rows come from. A word with a
space before it is also another token than the one that serving produces.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: " It is open.\\n\\n"}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Stripping answers is safe, except for code whose first line is indented.

## References
- stanford-crfm/helm#2467
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import AnswerFault, AnswerText, AnswerTextRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.data.conversation import Conversation

# Chosen; in LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) no answer
# has any. A single one is a slip, one in twenty a habit of whatever wrote them.
NOTE_ONE_IN = 20
"""Share of the rows, as 1 in so many, from which it is told"""


class WhitespaceAroundAnswers(AnswerTextRule):
    code = "ROW023"
    fault = Fault.PROMPT_ANSWER_BORDER_UNCLEAN
    symptoms = ("garbage-output",)
    severity = "info"
    looks_for = "white space around an answer"

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """At which end an answer has white space that the template does not strip."""
        text = answer.text
        if (
            answer.message is None
            or text == text.strip()
            or not text.strip()
            or self._does_template_strip()
        ):
            return None
        before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        kind = "before" if before else "after"
        if before and after:
            kind = "before and after"
        return AnswerFault(kind, f"the answer has {before + after!r} {kind} it")

    def _does_template_strip(self) -> bool:
        """Does the template take white space around contents away? Known from a probe."""
        if self._strips is None:
            probe = self.probes.text(
                [
                    {"role": "user", "content": "Where?"},
                    {"role": "assistant", "content": " \n there \n "},
                ]
            )
            self._strips = probe is not None and " \n there \n " not in probe
        return self._strips

    _strips: bool | None = None

    def findings(self) -> Iterator[Finding]:
        if self.found and self.found * NOTE_ONE_IN >= self.rows:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
            yield self.finding(
                f"{self.faulty_row_count_in_words} have an answer with white space around it: {kinds}",
                "strip the answers (answer.strip()), unless the white space is intended",
                cases=self.cases,
                count=self.found,
                total=self.rows,
            )
