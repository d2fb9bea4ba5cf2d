"""Fields of answers that are copied from the prompt are not in it, or two fields have each other's values.

## What it does
Reads answers that are JSON objects, and short answers to prompts that ask for a span or for exact words. A field whose
values are usually in the prompt (60 % of the rows, half of these word for word) is one that is copied. It fires if 15 %
of its values and five of them have no half of their words there. It fires too if the values of two fields are swapped
in 5 % of the rows and five: each is one that other rows have in the other field.

It also compares numbers of 9 digits and more. It fires if 15 % of those in the answers, and five, are a number of the
prompt that a float64 or a float32 rounded (`396482715093846217` as `396482715093846208` or `3.96482715093846e+17`), or
that has zeros after 15 digits, as spreadsheets keep it. Prompts that ask for rounding are left out.

## Why it is bad
The model learns to write what is not in the text: names and amounts of other rows. The JSON parses and every field is
filled, so neither the loss nor a check of the format shows it.

## Example
```yaml
data:
  - {copies: 30, of: {instruction: "Extract as JSON: Ada Ruiz called.", output: '{"name": "Ada Ruiz"}'}}
  - {copies: 10, of: {instruction: "Extract as JSON: Tom Wald wrote.", output: '{"name": "Eva Lind"}'}}
```

## Use instead
```yaml
data:
  - {copies: 30, of: {instruction: "Extract as JSON: Ada Ruiz called.", output: '{"name": "Ada Ruiz"}'}}
  - {copies: 10, of: {instruction: "Extract as JSON: Tom Wald wrote.", output: '{"name": "Tom Wald"}'}}
```

## Fix safety
Join texts and labels by an id in the script that makes the rows, not by their order; then it is safe. Drop rows whose
text was cut before the value. The lost digits of rounded numbers are in the prompt, or in the source that the script
read as numbers.

## References
- Rajpurkar et al. 2016, SQuAD (arXiv 1606.05250; answers are spans of the text), pandas-dev/pandas#48170 (long
  ids of a column with missing values lose their last digits)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows.evidence.rounded_numbers import numbers_copied_from_prompt
from truetune.checks.rows.json_answers_differ_in_form import object_of_answer
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

ASKS_FOR_WORDS_OF_TEXT = re.compile(
    r"\b(?:span|verbatim|exact (?:words?|phrase|text)|word for word|extract|copy the)\b", re.I
)
ANSWER = "the answer"
"""The name of the one field of an answer without fields"""
MAX_SHORT_ANSWER, MIN_CONTEXT = 80, 100
"""Characters of an answer that is a span, and of a prompt that holds a text"""
MIN_LETTERS = 3
MAX_VALUE, MAX_VALUE_WORDS = 80, 8
"""Of a value that is copied: longer ones are written"""
WORD = re.compile(r"[^\W_]{2,}")
STEM = 5
"""Characters of a word that are compared: endings differ"""
# Dates and categories are written in another form, and are in the prompt in far less than half of the rows.
COPIED_SHARE = 0.6
# Queries (`title:"sea salt" year:2020`) are made of the prompt's words and are no part of it.
WHOLE_SHARE = 0.5
"""Share of a field's values with words of their prompts that stand there as a whole, from which they are copies"""
# Chosen, not measured: spelling and abbreviations keep some names out of any text.
MIN_SHARE, MIN_ROWS = 0.15, 5
MIN_SWAPPED_SHARE = 0.05
MIN_TIMES, MIN_AT_HOME = 2, 0.5
"""Rows that have a value in the other field; share of the rows whose two values are clearly in their own fields"""
MAX_ROWS = 5_000
OWN, OTHER, UNKNOWN = "own", "other", "unknown"


class ExtractedValuesAreNotInThePrompt(DataRule):
    code = "ROW091"
    fault = Fault.ANSWERS_PAIRED_WITH_WRONG_QUESTIONS
    symptoms = ("garbage-output", "odd-metrics")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False
    moot_where = ("answers-of-other-rows",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.present: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        """Values that their prompts contain from end to end"""
        self.cases: defaultdict[str, list[Case]] = defaultdict(list)
        self.rows: list[tuple[dict[str, str], Case]] = []
        """The copied fields of a row"""
        self.long_numbers = 0
        """Long numbers of answers that are a number of the prompt, as it is or rounded"""
        self.rounded: list[Case] = []
        self.rounded_count = 0

    def add_batch(self, batch: Batch) -> None:
        """Count the values in the answers of a batch that their prompts do not hold."""
        for row in batch.rows:
            answer = next(iter(learned_answers_of_row(row)), None)
            if answer is None or row.text is not None or row.is_preference:
                continue
            prompt = text_besides_answers(row)
            values = _values_of_answer(prompt, answer.text)
            if values:
                self._count_values(values, " ".join(prompt.lower().split()), batch, row)
            self._count_long_numbers(prompt, answer.text, batch, row)

    def _count_long_numbers(
        self, prompt: str, answer: str, batch: Batch, row: Conversation
    ) -> None:
        """Count the long numbers of one answer, and those that a float has rounded."""
        for given, source in numbers_copied_from_prompt(prompt, answer):
            self.long_numbers += 1
            if source == given:
                continue
            self.rounded_count += 1
            if len(self.rounded) < MAX_CASES:
                text = f"the prompt has {source}, the answer has {given}"
                self.rounded.append(case_in_row(batch, row, text))

    def _count_values(
        self, values: dict[str, str], prompt: str, batch: Batch, row: Conversation
    ) -> None:
        """Count the values of one answer."""
        for field, value in values.items():
            self.present[field] += 1
            self.whole[field] += " ".join(value.lower().split()) in prompt
            words = {word[:STEM].lower() for word in WORD.findall(value)}
            if 2 * sum(word in prompt for word in words) >= len(words):
                continue
            self.missing[field] += 1
            if len(self.cases[field]) < MAX_CASES:
                text = f"`{field}` is {value!r}" if field != ANSWER else f"the answer is {value!r}"
                self.cases[field].append(case_in_row(batch, row, text))
        if len(values) > 1 and len(self.rows) < MAX_ROWS:
            self.rows.append((values, case_in_row(batch, row, f"the fields are {values}")))

    def unmet(self) -> Unmet | None:
        """Unmet where no answer has values that may be copied."""
        if self.present or self.long_numbers:
            return None
        return Unmet(
            "it is about answers whose values are copied from the prompt, and no row has one"
        )

    def measurement_if_clean(self) -> Measurement:
        """How many values of copied fields are not in the prompt."""
        fields = self._copied_fields()
        return make_count_measurement(
            "values of copied fields that are not in the prompt",
            sum(self.missing[field] for field in fields),
            sum(self.present[field] for field in fields),
        )

    def _copied_fields(self) -> list[str]:
        """The fields whose values are usually in the prompt, most of them as a whole."""
        held = {field: count - self.missing[field] for field, count in self.present.items()}
        return [
            field
            for field, count in held.items()
            if count >= COPIED_SHARE * self.present[field]
            and self.whole[field] >= WHOLE_SHARE * count
        ]

    def findings(self) -> Iterator[Finding]:
        missing = [
            field
            for field in self._copied_fields()
            if self.missing[field] >= max(MIN_ROWS, MIN_SHARE * self.present[field])
        ]
        if missing:
            told = ", ".join(
                f"{self.missing[field]:,} of {self.present[field]:,} "
                + (f"values of `{field}`" if field != ANSWER else "answers")
                for field in missing
            )
            yield self.finding(
                f"{told} have no half of their words in the prompt, from which the others are copied",
                "join texts and labels by an id in the script that makes the rows, and drop rows whose text is cut"
                " before the value",
                cases=[case for field in missing for case in self.cases[field]][:MAX_CASES],
                count=sum(self.missing[field] for field in missing),
                total=sum(self.present[field] for field in missing),
            )
        yield from self._findings_on_swapped_fields()
        yield from self._findings_on_rounded_numbers()

    def _findings_on_rounded_numbers(self) -> Iterator[Finding]:
        """The finding on long numbers whose last digits differ from those in the prompt."""
        if self.rounded_count < max(MIN_ROWS, MIN_SHARE * self.long_numbers):
            return
        yield self.finding(
            f"{self.rounded_count:,} of {self.long_numbers:,} long numbers in the answers are those of the prompts with"
            " other last digits, rounded by a float: the model learns to change the numbers that it should copy",
            "read long numbers as text in the script that makes the rows (dtype=str or 'Int64' in pandas, BigInt or"
            " strings in JavaScript, cells as text in a spreadsheet), and write the rows again",
            cases=self.rounded,
            count=self.rounded_count,
            total=self.long_numbers,
        )

    def _findings_on_swapped_fields(self) -> Iterator[Finding]:
        """The finding on two fields that have each other's values in some rows."""
        held: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for values, _ in self.rows:
            for field, value in values.items():
                held[field][value] += 1
        swapped: defaultdict[tuple[str, str], list[Case]] = defaultdict(list)
        at_home: Counter[tuple[str, str]] = Counter()
        for values, case in self.rows:
            for one, other in _pairs_of_fields(values):
                lean = {
                    _usual_field_of_value(held, values[one], own=one, other=other),
                    _usual_field_of_value(held, values[other], own=other, other=one),
                }
                at_home[one, other] += lean == {OWN}
                if lean == {OTHER}:
                    swapped[one, other].append(case)
        for pair, cases in swapped.items():
            is_frequent = len(cases) >= max(MIN_ROWS, MIN_SWAPPED_SHARE * len(self.rows))
            if is_frequent and at_home[pair] >= MIN_AT_HOME * len(self.rows):
                yield self.finding(
                    f"in {len(cases):,} of {len(self.rows):,} answers `{pair[0]}` and `{pair[1]}` have each other's"
                    " values",
                    "write fields by their names in the script that makes the rows, not by their order",
                    cases=cases[:MAX_CASES],
                    count=len(cases),
                    total=len(self.rows),
                )


def _pairs_of_fields(values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Each two fields of an answer."""
    names = sorted(values)
    yield from ((one, other) for number, one in enumerate(names) for other in names[number + 1 :])


def _usual_field_of_value(
    held: defaultdict[str, Counter[str]], value: str, *, own: str, other: str
) -> str:
    """Do the other rows have a value in its own field, or in the other one?"""
    elsewhere, here = held[other][value], held[own][value] - 1
    if elsewhere >= MIN_TIMES and elsewhere > here:
        return OTHER
    return OWN if here > elsewhere else UNKNOWN


def _values_of_answer(prompt: str, answer: str) -> dict[str, str]:
    """The texts of an answer that may be copied from its prompt, by field."""
    fields = object_of_answer(answer)
    if fields is not None:
        return {
            str(name): value.strip()
            for name, value in fields.items()
            if isinstance(value, str) and _may_be_copied(value.strip())
        }
    bare = answer.strip()
    is_span = len(bare) <= MAX_SHORT_ANSWER and len(prompt) >= MIN_CONTEXT and "\n" not in bare
    if is_span and _may_be_copied(bare) and ASKS_FOR_WORDS_OF_TEXT.search(prompt):
        return {ANSWER: bare}
    return {}


def _may_be_copied(value: str) -> bool:
    """Is a value a name or a few words?"""
    # Dates and amounts are often written in another form, and hold parts of what the prompt says by chance.
    has_letters = sum(map(str.isalpha, value)) >= MIN_LETTERS
    return (
        has_letters and len(value) <= MAX_VALUE and 1 <= len(WORD.findall(value)) <= MAX_VALUE_WORDS
    )
