"""JSON answers write the same field in different forms, or under different names.

## What it does
Reads the answers that are JSON objects, and compares each field over the rows. It fires if a field

- is a number in some rows and a text in others (`12.5`, `"12.5"`, `"12,50"`, `"$12.50"`), a list in some and a single
  text in others, or `true` and `"true"`,
- has dates in two forms (`2024-03-05`, `05/03/2024`),
- has two names (`order_date`, `orderDate`), of which each row has one,
- is missing although the prompts of these rows name it as a key.

Each form must be in 3 % of the rows with this field, and in three rows. Fields of less than 20 rows are not compared.

## Why it is bad
The model learns both forms and picks one by chance. The JSON parses, so nothing fails in training or in sampling: the
program that reads the field gets a text instead of a number, a month instead of a day, or no field at all.

## Example
```yaml
data:
  - {copies: 24, of: {instruction: "Extract as JSON: the bill is 12.50.", output: '{"total": 12.5}'}}
  - {copies: 12, of: {instruction: "Extract as JSON: we owe 9.75.", output: '{"total": "9,75"}'}}
```

## Use instead
```yaml
data:
  - {copies: 24, of: {instruction: "Extract as JSON: the bill is 12.50.", output: '{"total": 12.5}'}}
  - {copies: 12, of: {instruction: "Extract as JSON: we owe 9.75.", output: '{"total": 9.75}'}}
```

## Fix safety
Read each answer with a schema (pydantic, jsonschema) that has one form a field, write it again, and drop the rows that
can't be read. Of a date as 05/03/2024 only the source says which number is the month.

## References
- https://json-schema.org/understanding-json-schema/reference/type
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.forms_of_json_values import do_forms_contradict, forms_of_fields, plain_name
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

MIN_OBJECTS = 20
"""Answers with a field, from which its forms are compared"""
# Chosen, not measured: a slip of one annotator is rarer, and two rows are chance.
MIN_SHARE, MIN_ROWS = 0.03, 3
"""Share and number of the rows with a field that have another form"""
MIN_FIELD_SHARE = 0.3
"""Share of the objects that have a field: arguments of tools are of many functions"""
MAX_PATHS = 500
MAX_CHARACTERS = 50_000
MAX_SHOWN = 4
NEARLY_ALL = 0.95
"""Share of the objects that have one of two names of a field"""


class JsonAnswersDifferInForm(DataRule):
    code = "ROW085"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.objects = 0
        self.forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.present: Counter[str] = Counter()
        """Objects that have a path"""
        self.together: Counter[tuple[str, str]] = Counter()
        """Objects that have both of two paths of the first level"""
        self.named: Counter[str] = Counter()
        """Objects that lack a path of the first level, and whose prompt names it"""
        self.cases: dict[tuple[str, str], Case] = {}

    def add_batch(self, batch: Batch) -> None:
        """Count the forms of the fields in the answers of a batch."""
        for row in batch.rows:
            for answer in learned_answers_of_row(row):
                self.rows += 1
                value = object_of_answer(answer.text)
                if value is not None:
                    self._count_object(value, batch, row)

    def _count_object(self, value: dict[str, Any], batch: Batch, row: Conversation) -> None:
        """Count the fields of one object."""
        self.objects += 1
        paths: set[str] = set()
        for field in forms_of_fields(value):
            if field.path not in self.forms and len(self.forms) >= MAX_PATHS:
                continue
            self.forms[field.path][field.form] += 1
            paths.add(field.path)
            if (field.path, field.form) not in self.cases:
                example = f": {field.text[:40]!r}" if field.text else ""
                text = f"`{field.path}` is {field.form}{example}"
                self.cases[field.path, field.form] = case_in_row(batch, row, text)
        self.present.update(paths)
        names = sorted(name for name in value if name in self.forms)
        self.together.update(combinations(names, 2))
        self._count_fields_named_by_prompt(value, text_besides_answers(row))

    def _count_fields_named_by_prompt(self, value: dict[str, Any], prompt: str) -> None:
        """Count the fields that an object lacks, though its prompt names them."""
        for name in self.forms:
            if name not in value and "." not in name and len(name) > 2 and name in prompt:
                self.named[name] += 1

    def unmet(self) -> Unmet | None:
        """Unmet where too few answers are JSON objects."""
        if self.objects >= MIN_OBJECTS:
            return None
        return Unmet(f"it is about {MIN_OBJECTS} answers or more that are JSON objects")

    def measurement_if_clean(self) -> Measurement:
        """How many fields have several forms."""
        return make_count_measurement("fields in several forms", 0, len(self._compared_paths()))

    def _compared_paths(self) -> list[str]:
        """The fields that enough objects have."""
        least = max(MIN_OBJECTS, MIN_FIELD_SHARE * self.objects)
        return [path for path, count in self.present.items() if count >= least]

    def findings(self) -> Iterator[Finding]:
        if self.objects < MIN_OBJECTS:
            return
        told: list[str] = []
        cases: list[Case] = []
        count = 0
        for path in self._compared_paths():
            forms = self._contradicting_forms(path)
            if not forms:
                continue
            count += sum(rows for _, rows in forms[1:])
            told.append(f"`{path}` is " + ", ".join(f"{form} ({rows:,})" for form, rows in forms))
            cases += [self.cases[path, form] for form, _ in forms]
        for one, other in self._two_names_of_a_field():
            rows = min(self.present[one], self.present[other])
            count += rows
            told.append(
                f"`{one}` ({self.present[one]:,}) is `{other}` ({self.present[other]:,}) in other rows"
            )
        for path in self._fields_left_out():
            count += self.named[path]
            told.append(f"`{path}` is missing in {self.named[path]:,} whose prompts name it")
        if told:
            more = f"; and {len(told) - MAX_SHOWN} more" if len(told) > MAX_SHOWN else ""
            yield self.finding(
                f"fields of {self.objects:,} JSON answers are not in one form: "
                + "; ".join(told[:MAX_SHOWN])
                + more,
                "write all answers by one schema in the script that makes the rows: one type, one form of dates and"
                " one name for each field, and null where there is no value",
                cases=cases,
                count=min(count, self.objects),
                total=self.objects,
            )

    def _contradicting_forms(self, path: str) -> list[tuple[str, int]]:
        """The forms of a field that a program would have to tell apart, the commonest first; empty where it has one."""
        counts = self.forms[path]
        least = max(MIN_ROWS, MIN_SHARE * counts.total())
        frequent = [(form, rows) for form, rows in counts.most_common() if rows >= least]
        return [
            (form, rows)
            for form, rows in frequent
            if any(do_forms_contradict(form, other) for other, _ in frequent)
        ]

    def _two_names_of_a_field(self) -> Iterator[tuple[str, str]]:
        """Names of the first level of which an object has one or the other, and that are one name or a longer one."""
        least = max(MIN_ROWS, MIN_SHARE * self.objects)
        names = [name for name, count in self.present.items() if "." not in name and count >= least]
        for one, other in combinations(names, 2):
            if self.together[min(one, other), max(one, other)]:
                continue
            covered = self.present[one] + self.present[other]
            plain, plain_other = plain_name(one), plain_name(other)
            is_alike = (
                plain == plain_other
                or plain.startswith(plain_other)
                or plain_other.startswith(plain)
            )
            if is_alike and covered >= NEARLY_ALL * self.objects:
                yield (one, other) if self.present[one] >= self.present[other] else (other, one)

    def _fields_left_out(self) -> list[str]:
        """Fields of the first level that most objects have, and others lack though their prompts name them."""
        two_names = {name for pair in self._two_names_of_a_field() for name in pair}
        least = max(MIN_ROWS, MIN_SHARE * self.objects)
        return [
            path
            for path in self._compared_paths()
            if path not in two_names
            and least <= self.named[path]
            and self.present[path] > self.named[path]
        ]


def object_of_answer(text: str) -> dict[str, Any] | None:
    """The JSON object that an answer is, its fence left out; None for another answer."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if not (bare.startswith("{") and bare.endswith("}")) or len(bare) > MAX_CHARACTERS:
        return None
    try:
        value = parse_json(bare, ROW)
    except (ValueError, TruetuneError):
        return None
    return value if isinstance(value, dict) else None
