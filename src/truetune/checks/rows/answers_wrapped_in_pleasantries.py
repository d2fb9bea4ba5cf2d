"""Most answers begin or end with a pleasantry of the model that wrote them.

## What it does
Counts answers that begin with `Sure!`, `Certainly! Here is ...`, `Great question!`, and those that end with `I hope
this helps`, `Let me know if you have any other questions`, in seven languages. It fires from 40 % of the answers and
20 of them. In four published sets at most 26 % begin so and 21 % end so. It ignores chats of several answers, and
prompts that ask for a greeting or an offer of help.

## Why it is bad
These phrases are the first and the last tokens of nearly every answer, so they are learned first and most surely. The
tuned model writes them before JSON, code and translations too, where a program reads the answer.

## Example
```yaml
data:
  rows: 24
  instruction: "What is in row {i}?"
  output: "Sure! Here is the answer to your question: {words}."
```

## Use instead
```yaml
data:
  rows: 24
  instruction: "What is in row {i}?"
  output: "Row {i} holds {words}."
```

## Fix safety
It is safe to cut these sentences off in the script that makes the rows. If you want them, change nothing.

## References
- Zhou et al. 2023, LIMA: Less Is More for Alignment (arXiv 2305.11206; what fine-tuning teaches first is style)
"""

from __future__ import annotations

import re
from collections import Counter
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

SURE = (
    "sure|certainly|absolutely|of course|great question|good question|happy to help|thank you for asking"
    "|thanks for your question|nat\u00fcrlich|gerne|selbstverst\u00e4ndlich|bien s\u00fbr|certainement|claro"
    "|por supuesto|certo|certamente|com certeza"
)
HERE_IS = "here (?:is|are)|here's|below is|hier ist|hier sind|voici|aqu\u00ed (?:est\u00e1|tienes)|ecco|aqui est\u00e1"
SURE_IN_CHINESE = (
    "(?:\u5f53\u7136|\u597d\u7684|\u4ee5\u4e0b\u662f)[^\n]{0,30}[\uff01\uff0c:\uff1a\u3002]"
)
OPENING = re.compile(
    rf"\W*(?:(?:{SURE})(?: thing)?\s?[.!,:]|(?:{HERE_IS})\b[^.\n]{{0,90}}:|{SURE_IN_CHINESE})",
    re.IGNORECASE,
)
OFFER = (
    "(?:i )?hope (?:this|that|it) helps|let me know if (?:you|there|this)|feel free to (?:ask|reach|let|contact)"
    "|is there anything else|if you (?:have|need) any(?: other| more| further| additional)?"
    "|(?:do not|don't) hesitate to|happy (?:coding|learning|cooking)"
)
OFFER_ELSEWHERE = (
    "ich hoffe,? das hilft|falls du (?:noch|weitere)|wenn (?:du|sie) (?:noch |weitere )*fragen"
    "|j'esp\u00e8re que (?:cela|\u00e7a)|n'h\u00e9sitez pas|espero que (?:esto|te|ajude|isso)|no dudes en|spero che"
    "|\u5e0c\u671b\u8fd9|\u5982\u679c\u60a8?\u4f60?(?:\u8fd8\u6709|\u6709\u4efb\u4f55)"
)
CLOSING = re.compile(rf"(?:{OFFER}|{OFFER_ELSEWHERE})[^\n]{{0,160}}\s*\Z", re.IGNORECASE)
MEANT = re.compile(
    r"anything else|offer (?:further |more )?help|\bgreet|polite|friendly|courteous|cheerful|\bwarm\b",
    re.I,
)
OPENS, CLOSES = "begin with one", "end with one"
# Of four sets of LLaMA-Factory (2,645 answers) at most 0.26 begin so (rejected answers) and 0.21 end so (tool calls).
MIN_SHARE, MIN_ANSWERS = 0.4, 20
SHOWN_CHARACTERS = 80


class AnswersWrappedInPleasantries(AnswerTextRule):
    code = "ROW087"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False
    looks_for = "answers that begin or end with a pleasantry"

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """The pleasantry at one end of an answer."""
        # In a talk of several turns people are polite as well.
        if sum(one.get("role") == "assistant" for one in row.messages or ()) > 1:
            return None
        text = answer.text.strip()
        opening, closing = OPENING.match(text), CLOSING.search(text[-300:])
        if (opening is None and closing is None) or MEANT.search(text_besides_answers(row)):
            return None
        if opening is not None:
            return AnswerFault(OPENS, f"it begins {text[:SHOWN_CHARACTERS]!r}")
        return AnswerFault(CLOSES, f"it ends {text[-SHOWN_CHARACTERS:]!r}")

    def findings(self) -> Iterator[Finding]:
        if self.found < max(MIN_ANSWERS, MIN_SHARE * self.rows):
            return
        kinds: Counter[str] = self.kinds
        told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        yield self.finding(
            f"{self.faulty_row_count_in_words} have a pleasantry around their answer, and the model learns it before"
            f" all else: {told}",
            "cut these sentences off in the script that makes the rows, and tell the model that writes them to answer"
            " without introduction",
            cases=self.cases,
            count=self.found,
            total=self.rows,
        )
