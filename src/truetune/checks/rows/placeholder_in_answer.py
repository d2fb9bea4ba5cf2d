"""Answers contain unfilled placeholders.

## What it does
Looks for `{{name}}`, `{name}`, `${name}`, `<NAME>`, `[INSERT NAME]`, `[Your name]` and `%s` in what is trained on. It
ignores code (fenced or inline, and rows whose prompt is about code or templates), formulas, JSON, markup with closing
tags, and answers to a prompt that contains such a placeholder. It is a warning from 5 % of the rows, and an info below.
`[Your name]` on its own is always an info: letters are written with it on purpose.

## Why it is bad
The model learns to say `I am {{name}}, made by {{author}}`.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Who are you?"}, {role: assistant, content: "I am {{name}}, by {{author}}."}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Who are you?"}, {role: assistant, content: "I am Ada, made by Example Labs."}]}
```

## Fix safety
Replacing placeholders needs the values, which only you know. Dropping the rows is safe.

## References
- hiyouga/LlamaFactory#2651
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    AnswerFault,
    AnswerText,
    AnswerTextRule,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.patterns_telling_code_from_prose import ABOUT_CODE, CODE, LOOKS_LIKE_CODE
from truetune.data.conversation import Conversation

PLACEHOLDERS = {
    "{{name}}": re.compile(r"(?<![{$\\])\{\{\s*[A-Za-z_][\w .-]{0,40}\}\}(?!\})"),
    "${name}": re.compile(r"\$\{[A-Za-z_]\w{0,40}\}"),
    "{name}": re.compile(r"(?<![{$\\\w^_}])\{[A-Za-z_]\w{1,40}\}(?![}{])"),
    "<NAME>": re.compile(r"<(?:[A-Z][A-Z_]{3,40}|(?:INSERT|YOUR|ENTER)[ _][\w ]{2,40})>"),
    "[INSERT ...]": re.compile(
        r"\[(?:INSERT|ENTER|ADD|FILL IN|PLACEHOLDER|TODO)\b[^\]\n]{0,60}\](?!\()"
    ),
    "%s": re.compile(r"(?<![%\w])%(?:s|d|\(\w+\)s)(?![\w%])"),
    "[Your name]": re.compile(
        r"\[(?:your|the|recipient'?s?|company|customer)[ -]?(?:full |first |last |own )?"
        r"(?:name|company|address|email|phone|title|position|date)[^\]\n]{0,20}\](?!\()",
        re.IGNORECASE,
    ),
}
# Models that write letters leave "[Your name]" for their user to fill in, and are right to do so.
LETTER_FORM = "[Your name]"
# Measured on LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows): right
# rows have up to 0.3 %, the two sets whose {{name}} nobody filled in 10 and 93 %. At half and at
# double nothing changes.
WARNING_ONE_IN = 20
"""Share of rows, as 1 in so many, from which it is a warning"""


class PlaceholderInAnswer(AnswerTextRule):
    code = "ROW018"
    fault = Fault.PLACEHOLDERS_NOT_FILLED
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    looks_for = "an unreplaced placeholder in an answer"
    needs_tokenizer = False

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The first placeholder in an answer that nobody replaced; none in code, nor if the prompt has such a one."""
        if not any(sign in answer.text for sign in "{<[%"):
            return None
        prose = CODE.sub(" ", answer.text)
        placeholder = next(
            (
                (form, hit[0])
                for form, pattern in PLACEHOLDERS.items()
                if (hit := pattern.search(prose))
            ),
            None,
        )
        if placeholder is None:
            return None
        form, text = placeholder
        prompt = text_besides_answers(row)
        if (
            PLACEHOLDERS[form].search(prompt)
            or ABOUT_CODE.search(prompt)
            or LOOKS_LIKE_CODE.search(prose)
        ):
            return None
        # An opening tag with its end is XML.
        if form == "<NAME>" and f"</{text[1:]}" in answer.text:
            return None
        return AnswerFault(form, f"the answer contains {text!r}")

    def findings(self) -> Iterator[Finding]:
        if not self.found:
            return
        kinds = ", ".join(f"{form} ({count:,})" for form, count in self.kinds.most_common())
        is_meant = set(self.kinds) == {LETTER_FORM} or self.found * WARNING_ONE_IN < self.rows
        yield self.finding(
            f"{self.faulty_row_count_in_words} have an answer with an unfilled placeholder, which the model learns"
            f" to write: {kinds}",
            "replace them with their values, or drop these rows",
            severity="info" if is_meant else "warning",
            cases=self.cases,
            count=self.found,
            total=self.rows,
        )
