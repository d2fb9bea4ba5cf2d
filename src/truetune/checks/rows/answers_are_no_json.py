"""Answers should be JSON, but no JSON parser can read them.

## What it does
Reads each answer that begins and ends like an object or a list. If the prompt mentions JSON, it counts

- Python values (`{'paid': None}`, as `str(dict)` prints them), a comma after the last field, and NaN,
- JSON in a fence (```` ```json ````) or after a line such as "Here is the JSON:" if other answers are bare JSON.

It is an info if all answers are wrapped like this, or if they are Python values and no prompt mentions JSON. Rows whose
prompt mentions Python or a dictionary are ignored.

## Why it is bad
The model learns the format that it is shown. `json.loads` then fails on nearly every answer.

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
`json.dumps(ast.literal_eval(answer), ensure_ascii=False)` converts a printed Python value into JSON without loss.
Correct the script that writes the rows (`json.dumps(fields)` instead of `str(fields)`), and train again.

## References
- Python documentation, `json.dumps` and `ast.literal_eval`
"""

from __future__ import annotations

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
from truetune.checks.rule import Setup
from truetune.data.conversation import Conversation
from truetune.generation.texts_that_json_parsers_refuse import (
    SERIALIZATION_PHRASES,
    Serialization,
    asks_for_json,
    asks_for_python,
    line_before_json,
    serialization_of_object_or_list,
)

MIN_MIXED = 0.05
"""Share of the answers from which fenced ones among others, or the others, are no slip"""
# Chosen, not measured: fewer may be a sample, and lessons on JSON have it in some of their rows only.
MIN_WRAPPED, MIN_SHARE_OF_JSON = 20, 0.5
"""Answers that are wrapped, and their share of all rows, from which a set without a bare one is reported"""
WRAPPED: tuple[Serialization, ...] = ("fenced", "worded", "worded fence")
"""JSON that a parser reads once its wrapping is off"""
MAX_LEADS = 1_000
"""Different lines before the JSON that are counted"""
UNASKED = "python, and no prompt speaks of JSON"
REMEDY = (
    "write the answers with json.dumps(value, ensure_ascii=False), not with str() or an f-string, and train again;"
    " to convert existing rows: json.dumps(ast.literal_eval(answer))"
)


class AnswersAreNoJson(AnswerTextRule):
    code = "ROW051"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "error"
    needs_tokenizer = False
    looks_for = "answers that should be JSON and are not"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.forms: Counter[str] = Counter()
        self.leads: Counter[str] = Counter()

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """Why an answer that looks like JSON is none, unless the prompt asks for Python."""
        form = serialization_of_object_or_list(answer.text)
        if form is None:
            return None
        self.forms[form] += 1
        prompt = text_besides_answers(row)
        if form == "json" or asks_for_python(prompt):
            return None
        shown = f"the answer is {answer.text.strip()[:80]!r}"
        if asks_for_json(prompt):
            self._count_line_before_json(answer.text)
            return AnswerFault(form, shown)
        return AnswerFault(UNASKED, shown) if form == "python" else None

    def findings(self) -> Iterator[Finding]:
        broken = {
            kind: count
            for kind, count in self.kinds.items()
            if kind in SERIALIZATION_PHRASES and kind not in WRAPPED
        }
        if broken:
            told = "; ".join(
                f"{count:,} {SERIALIZATION_PHRASES[kind]}" for kind, count in broken.items()
            )
            yield self._finding_on_unreadable(
                f"prompts ask for JSON, but json.loads fails on the answers: of {self.rows:,} rows {told}",
                sum(broken.values()),
            )
        elif self.kinds[UNASKED]:
            yield self.finding(
                f"{self.kinds[UNASKED]:,} of {self.rows:,} rows have an answer that is a Python value as"
                " str() prints it",
                f"if Python reads the answers (ast.literal_eval), change nothing; otherwise {REMEDY}",
                severity="info",
                cases=self.cases,
                count=self.kinds[UNASKED],
                total=self.rows,
            )
        if not broken:
            yield from self._finding_on_wrapped_json()

    def _count_line_before_json(self, text: str) -> None:
        """Count the line that stands before the JSON of an answer, if there is one."""
        lead = line_before_json(text)
        if lead is not None and (lead in self.leads or len(self.leads) < MAX_LEADS):
            self.leads[lead] += 1

    def _finding_on_wrapped_json(self) -> Iterator[Finding]:
        """The finding on answers whose JSON stands in a fence or in words; a note if all do, for
        that may be what is wanted.
        """
        wrapped = sum(self.kinds[kind] for kind in WRAPPED)
        plain = self.forms["json"]
        is_mixed = min(wrapped, plain) >= max(2, MIN_MIXED * (wrapped + plain))
        is_all = plain * 10 <= wrapped and wrapped >= max(
            MIN_WRAPPED, MIN_SHARE_OF_JSON * self.rows
        )
        if not is_mixed and not is_all:
            return
        told = self._describe_wrapping(wrapped)
        yield self.finding(
            f"{wrapped:,} of {self.rows:,} rows have their JSON {told}, and {plain:,} have it bare: json.loads fails"
            " on every answer in which the model repeats the wrapping",
            "remove the fences and the words around the JSON from the answers, and train again; most parsers want"
            " bare JSON"
            if is_mixed
            else (
                "if the program that reads the answers removes the wrapping, change nothing; otherwise remove it"
                " from the answers and train again"
            ),
            severity="warning" if is_mixed else "info",
            cases=self.cases,
            count=wrapped,
            total=self.rows,
        )

    def _describe_wrapping(self, wrapped: int) -> str:
        """`in a fence (```json), 556 of them after words such as 'Here is the JSON:'`"""
        worded = self.kinds["worded"] + self.kinds["worded fence"]
        lead = f" such as {self.leads.most_common(1)[0][0]!r}" if self.leads else ""
        if worded == self.kinds["worded"] == wrapped:
            return f"after words{lead}"
        fenced = wrapped - self.kinds["worded"]
        more = f" ({worded:,} of them after words{lead})" if worded else ""
        place = "in a fence (```json)" if fenced == wrapped else "in a fence (```json) or in words"
        return f"{place}{more}"

    def _finding_on_unreadable(self, message: str, count: int) -> Finding:
        """The finding on answers that no parser reads; an error where they are more than a slip."""
        return self.finding(
            message,
            REMEDY,
            severity="error" if count * 10 >= self.rows else "warning",
            cases=self.cases,
            count=count,
            total=self.rows,
        )
