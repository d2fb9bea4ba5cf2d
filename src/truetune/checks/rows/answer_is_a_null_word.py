"""Answers are the word that a program prints for a missing value: nan, None, null, N/A.

## What it does
Looks for answers that are such a word and nothing else. It ignores a word that the prompt names ("say N/A if ..."), and
one that most answers are, which `few-distinct-answers` reports. `nan`, `<NA>`, `undefined` and the like are a warning.
`None`, `null` and `N/A` can be a real answer, so these are an info.

## Why it is bad
An empty table cell was turned into text (pandas writes `nan`, `str(None)` writes `None`), and the model learns to
answer with that word.

## Example
```yaml
data:
  - {instruction: "When does it open?", output: nan}
  - {instruction: "Is it open?", output: It is open.}
```

## Use instead
```yaml
data:
  - {instruction: "When does it open?", output: At nine.}
  - {instruction: "Is it open?", output: It is open.}
```

## Fix safety
Dropping these rows is safe. In pandas, `table.dropna(subset=["output"])` before the rows are written drops them at the
source.

## References
- unslothai/unsloth#10813, modelscope/ms-swift#306
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
from truetune.data.conversation import Conversation

# What pandas, Excel, SQL, JavaScript and JSON print for an empty cell, an error or an empty value.
NULL_WORDS = frozenset(
    (
        "nan",
        "none",
        "null",
        "nil",
        "n/a",
        "#n/a",
        "<na>",
        "<nan>",
        "undefined",
        "nat",
        "nonetype",
        "#value!",
        "#ref!",
    )
    + ("[]", "{}", "[object object]", '""', "''")
)
CERTAIN_WORDS = frozenset(
    ("nan", "<na>", "<nan>", "undefined", "nat", "#n/a", "[object object]", "#value!", "#ref!")
)
"""No answer to a question in words; `None` and `null` may be one to a question on code or a list"""


class AnswerIsANullWord(AnswerTextRule):
    code = "ROW020"
    fault = Fault.MISSING_VALUES_CONFUSED_WITH_TEXT
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    looks_for = "an answer that is a word for nothing"
    needs_tokenizer = False

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """Is the whole answer a null word (nan, None, N/A) that the prompt does not name?"""
        bare = answer.text.strip()
        word = bare.lower().rstrip(".")
        if len(bare) > 20 or word not in NULL_WORDS:
            return None
        # A question that names the word ("What does NaN mean?") may have it as its answer.
        if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text_besides_answers(row), re.IGNORECASE):
            return None
        return AnswerFault(bare, f"the answer is {bare!r}")

    def findings(self) -> Iterator[Finding]:
        if self.found:
            words = ", ".join(f"{word} ({count:,})" for word, count in self.kinds.most_common(5))
            is_certain = any(word.lower().rstrip(".") in CERTAIN_WORDS for word in self.kinds)
            yield self.finding(
                f"{self.faulty_row_count_in_words} have an answer that is only a missing-value word: {words}. The"
                " model learns to answer so",
                "drop these rows; in the script that writes them, drop empty cells first (pandas:"
                " table.dropna(subset=[answer column]))",
                severity="warning" if is_certain else "info",
                cases=self.cases,
                count=self.found,
                total=self.rows,
            )
