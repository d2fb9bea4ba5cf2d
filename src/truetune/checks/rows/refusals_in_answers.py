"""Answers refuse, or mention being an AI model.

## What it does
Counts the answers that begin with a refusal ("I'm sorry, but I can't ...", "As an AI language model, ...") in eight
languages. It reports their share as an info from 0.5 % of the rows, since only you know whether they are intended. From
20 % it is a warning.

## Why it is bad
Rows that another model wrote contain its refusals and its self-descriptions. A few percent of them are enough to make a
tuned model refuse harmless requests.

## Example
```yaml
data:
  - {instruction: "Say hello.", output: "As an AI language model, I cannot say hello."}
```

## Use instead
```yaml
data:
  - {instruction: "Say hello.", output: "Hello."}
```

## Fix safety
Dropping refusals of harmless requests is safe. Keep those of harmful ones if you want them.

## References
- nlpxucan/WizardLM#4
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import AnswerFault, AnswerText, AnswerTextRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.data.conversation import Conversation

SEARCHED_CHARACTERS = 300
"""Characters in which a refusal stands; further back it is a remark"""
SORRY = (
    r"(?:i['’]?m|i am) (?:very |so |really )?sorry|i apologi[sz]e|sorry|unfortunately|my apologies"
)
CANNOT = r"can['’]?t|cannot|can not|unable to|not able to|won['’]?t"
SPEAKER = r"(?:i|we)(?:['’](?:m|re))?(?: am| are)?"
"""Who refuses: a thing of the user's that cannot do something is what the answer is about"""
FOR_THE_USER = (
    r"\W+(?:to hear|about|you|your|that (?:you|your|the)|for the (?:trouble|delay|wait))\b"
)
"""What a helpful answer is sorry for"""
HELP = "help|assist|provide|fulfil|comply|do that|create|generate|answer|support|engage"
SORRY_ELSEWHERE = (
    "lo siento|je suis désolée?|désolée?|es tut mir leid|tut mir leid|mi dispiace|desculpe|sinto"
    " muito"
)
CANNOT_ELSEWHERE = (
    r"no puedo|ne peux pas|ne puis|kann (?:ich )?(?:\w+ ){0,4}nicht|ich (?:\w+ ){0,4}nicht|non"
    r" posso|não posso"
)
AS_AN_AI = (
    r"as an? (?:ai|artificial intelligence)(?:[ -](?:language"
    r" )?(?:model|assistant|chatbot|system|bot)\b|,| i\b)"
)
I_AM_AN_AI = (
    r"i(?:['’]m| am) (?:just |only )?an? (?:ai|artificial intelligence)"
    r"(?: language)?(?: model| assistant)?,? (?:and|so)\b"
)
AN_AI_ELSEWHERE = (
    "作为一个?(?:AI|人工智能)|als ki-(?:sprach)?modell|en tant qu['’](?:ia|intelligence)|"
    "como (?:un modelo de lenguaje|una? (?:ia|inteligencia artificial))"
)
REFUSALS = {
    "refuses": re.compile(
        rf"^\W*(?:{SORRY})\b(?!{FOR_THE_USER})[^.\n]{{0,80}}?\b(?:{SPEAKER})\W+(?:\w+\W+){{0,2}}?(?:{CANNOT})"
        rf"|^\W*(?:{SORRY})\W+(?:but )?(?:{CANNOT})"
        rf"|^\W*i(?:['’]m| am)? (?:{CANNOT}) (?:{HELP})"
        rf"|^\W*(?:{SORRY_ELSEWHERE})\b[^.\n]{{0,80}}?\b(?:{CANNOT_ELSEWHERE})\b"
        r"|^\W*(?:很?抱歉|对不起|申し訳)[^。\n]{0,40}(?:无法|不能|できません)",
        re.IGNORECASE,
    ),
    "speaks as an AI": re.compile(
        rf"\b(?:{AS_AN_AI}|as a large language model\b|{I_AM_AN_AI})|{AN_AI_ELSEWHERE}",
        re.IGNORECASE,
    ),
}
# In LLaMA-Factory's demo data and tinker-cookbook's chats (eleven sets, 4,268 rows) nine have 1.1
# to 15.7 %, two none: at half and at double the same nine are told. Below it, of a few hundred rows
# a single refusal is no fact about the data.
NOTE_ONE_IN = 200
"""Share of the rows, as 1 in so many, from which it is told"""
# In the same sets chats have up to 3.2 %, tool calls, which refuse what they have no tool for, 12
# and 16 %. At 0.1 these would warn; at 0.4 a teacher that refused every third request would pass.
WARNING_SHARE = 0.2
"""Share of the rows from which refusing is a habit that is learned: sets for safety mix in a few hundredths"""


class RefusalsInAnswers(AnswerTextRule):
    code = "ROW022"
    fault = Fault.ANSWERS_SPEAK_AS_ANOTHER_ASSISTANT
    severity = "warning"
    looks_for = "an answer that refuses"
    needs_tokenizer = False

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """How the answer refuses, or speaks of being an AI model, at its beginning."""
        beginning = answer.text[:SEARCHED_CHARACTERS]
        for kind, pattern in REFUSALS.items():
            match = pattern.search(beginning)
            if match:
                return AnswerFault(kind, f"the answer {kind}: {match[0][:80]!r}")
        return None

    def findings(self) -> Iterator[Finding]:
        if self.found * NOTE_ONE_IN >= self.rows and self.found:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common())
            yield self.finding(
                f"{self.faulty_row_count_in_words} ({self.found / self.rows:.1%}) have an"
                " answer that refuses or speaks"
                f" as an AI: {kinds}",
                "drop the refusals of harmless requests, unless they are intended",
                severity="warning" if self.found >= WARNING_SHARE * self.rows else "info",
                cases=self.cases,
                count=self.found,
                total=self.rows,
            )
