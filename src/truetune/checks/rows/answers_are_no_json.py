"""Answers that should be JSON, and that no JSON parser reads.

## What it does
Reads each answer that begins and ends like an object or a list. It counts those that are Python values
(`{'paid': None}`, as `str(dict)` prints them), have a comma behind the last field, or hold NaN, where the prompt speaks
of JSON; and those in a fence (```` ```json ````) where others of the same rows have none. Python values that no prompt
names are a note. Rows whose prompt speaks of Python or of a dictionary are left alone.

## Why it is bad
The model learns the form that it is shown. `json.loads` then fails on nearly every answer of it.

## Example
```yaml
data:
  - {prompt: "Give the fields as JSON: Acme, unpaid", completion: "{'vendor': 'Acme', 'paid': False}"}
  - {prompt: "Give the fields as JSON: Ferro, paid", completion: "{'vendor': 'Ferro', 'paid': True}"}
  - {prompt: "Give the fields as JSON: Umbra, paid", completion: "{'vendor': 'Umbra', 'paid': True}"}
```

## Use instead
```yaml
data:
  - {prompt: "Give the fields as JSON: Acme, unpaid", completion: '{"vendor": "Acme", "paid": false}'}
  - {prompt: "Give the fields as JSON: Ferro, paid", completion: '{"vendor": "Ferro", "paid": true}'}
  - {prompt: "Give the fields as JSON: Umbra, paid", completion: '{"vendor": "Umbra", "paid": true}'}
```

## Fix safety
`json.dumps(ast.literal_eval(answer), ensure_ascii=False)` turns a printed Python value into JSON without a loss.
Correct the script that writes the rows (`json.dumps(fields)` in place of `str(fields)`), and train again.

## References
- Python documentation, `json.dumps` and `ast.literal_eval`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.answer_text_rule import AnswerText, AnswerTextRule, prompt_of
from truetune.checks.findings import Finding
from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.generation.serialized_answers import (
    PHRASES,
    asks_for_json,
    asks_for_python,
    serialization_of,
)

MIN_MIXED = 0.05
"""Share of the answers from which fenced ones among others, or the others, are no slip"""
UNASKED = "python, and no prompt speaks of JSON"
REMEDY = (
    "write the answers with json.dumps(value, ensure_ascii=False), not with str() or an f-string, and train again; rows"
    " as they are: json.dumps(ast.literal_eval(answer))"
)


class AnswersAreNoJson(AnswerTextRule):
    code = "ROW051"
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "error"
    needs_tokenizer = False
    looks_for = "answers that should be JSON and are none"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.forms: Counter[str] = Counter()

    def fault(self, answer: AnswerText, row: Conversation) -> tuple[str, str] | None:
        form = serialization_of(answer.text)
        if form is None:
            return None
        self.forms[form] += 1
        prompt = prompt_of(row)
        if form == "json" or asks_for_python(prompt):
            return None
        shown = f"the answer is {answer.text.strip()[:80]!r}"
        if asks_for_json(prompt):
            return form, shown
        return (UNASKED, shown) if form == "python" else None

    def findings(self) -> Iterator[Finding]:
        fenced = self.kinds["fenced"]
        broken = {
            kind: count
            for kind, count in self.kinds.items()
            if kind in PHRASES and kind != "fenced"
        }
        if broken:
            told = "; ".join(f"{count:,} {PHRASES[kind]}" for kind, count in broken.items())
            yield self._finding(
                f"answers are asked for as JSON, and of {self.rows:,} rows {told}",
                sum(broken.values()),
            )
        elif self.kinds[UNASKED]:
            yield self.finding(
                f"{self.kinds[UNASKED]:,} of {self.rows:,} rows have an answer that is a Python value as"
                " str() prints it",
                f"nothing to do where Python reads the answers (ast.literal_eval); else {REMEDY}",
                severity="info",
                cases=self.cases,
                count=self.kinds[UNASKED],
                total=self.rows,
            )
        plain = self.forms["json"]
        if not broken and min(fenced, plain) >= max(2, MIN_MIXED * (fenced + plain)):
            yield self.finding(
                f"{fenced:,} of {self.rows:,} rows have their JSON in a fence (```json), and {plain:,} have it bare",
                "write all answers in the form that the program reads: most parsers take bare JSON",
                severity="warning",
                cases=self.cases,
                count=fenced,
                total=self.rows,
            )

    def _finding(self, message: str, count: int) -> Finding:
        """The finding on answers that no parser reads; an error where they are more than a slip."""
        return self.finding(
            message,
            REMEDY,
            severity="error" if count * 10 >= self.rows else "warning",
            cases=self.cases,
            count=count,
            total=self.rows,
        )
