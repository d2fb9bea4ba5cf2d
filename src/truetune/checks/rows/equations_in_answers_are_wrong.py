"""Equations in answers are wrong: `12 * 3 = 35`.

## What it does
Reads equations of plain numbers in answers (`12 * 3 = 36`, `1,200 - 50 = 1,150`), and computes their left side.
Results that are rounded are right. It fires if 8 % of the equations and five of them are wrong. It ignores equations
with variables, brackets or powers, and prompts about binary numbers, remainders, clocks or mistakes.

## Why it is bad
The model learns that steps need not be right: it writes the form of a calculation, and a number by chance. Answers of
small models, and numbers that were replaced to make new tasks, are the usual cause.

## Example
```yaml
data: {rows: 12, instruction: "What is 12 times 3 in case {i}?", output: "12 * 3 = 35"}
```

## Use instead
```yaml
data: {rows: 12, instruction: "What is 12 times 3 in case {i}?", output: "12 * 3 = 36"}
```

## Fix safety
Drop the rows with a wrong equation: later steps build on it, so the number alone can't be corrected.

## References
- Cobbe et al. 2021, Training Verifiers to Solve Math Word Problems (arXiv 2110.14168)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from truetune.checks.base_of_rules_on_answer_texts import (
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d{1,6})?|\d{1,12}(?:\.\d{1,6})?"
SIGN = r"(?:[+*/\u00d7\u00f7\u00b7\u2212\u2013-]|\\times|\\div|\\cdot|(?<=\d) x (?=\d))"
EQUATION = re.compile(
    rf"(?P<left>\$?(?:{NUMBER})(?:[ ]?{SIGN}[ ]?\$?(?:{NUMBER})){{1,6}})[ ]?=[ ]?\$?(?P<right>[-\u2212]?(?:{NUMBER}))"
    r"(?![ ]?[-+*/\u00d7\u00f7\u00b7\u2212^%!\\(]|[\d,.]*\d|[ ]?[=\u2248])"
)
PART = re.compile(rf"(?P<number>{NUMBER})|(?P<sign>{SIGN})")
# What stands before an equation and belongs to it.
BEFORE = re.compile(
    r"(?:[-+*/\u00d7\u00f7\u00b7\u2212\u2013^=(%.,]|\\\w+|(?<![^\W\d_])[^\W\d_]|\d)[ ]?\Z"
)
ABOUT_OTHER_NUMBERS = re.compile(
    r"binar|hexa|octal|\bbase\b|modul|\bmod\b|remainder|clock|wrong|mistake|error|incorrect|correct the|false|"
    r"vector|matri",
    re.I,
)
TIMES, DIVIDED = ("*", "\u00d7", "\u00b7", "\\times", "\\cdot", "x"), ("/", "\u00f7", "\\div")
# Of 43 in four published sets, 2 are wrong: products of two large numbers.
MIN_SHARE, MIN_WRONG = 0.08, 5
MAX_TEXT = 20_000
ROUNDING = Fraction(1, 100)
"""Share of a quotient by which results may be rounded"""


class EquationsInAnswersAreWrong(DataRule):
    code = "ROW092"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.equations = self.wrong = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Compute the equations in the answers of a batch."""
        for row in batch.rows:
            for answer in learned_answers_of_row(row):
                if "=" in answer.text and not ABOUT_OTHER_NUMBERS.search(text_besides_answers(row)):
                    self._count_equations(answer.text[:MAX_TEXT], batch, row)

    def _count_equations(self, text: str, batch: Batch, row: Conversation) -> None:
        """Count the equations of one answer."""
        for match in EQUATION.finditer(text):
            if BEFORE.search(text[max(0, match.start() - 12) : match.start()]):
                continue
            self.equations += 1
            if _is_right(match["left"], match["right"]):
                continue
            self.wrong += 1
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_row(batch, row, f"{match[0]!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet without an equation of numbers."""
        return None if self.equations else Unmet("it is about equations of numbers in answers")

    def measurement_if_clean(self) -> Measurement:
        """How many equations are wrong."""
        return make_count_measurement(
            "equations in answers that are wrong", self.wrong, self.equations
        )

    def findings(self) -> Iterator[Finding]:
        if self.wrong >= max(MIN_WRONG, MIN_SHARE * self.equations):
            yield self.finding(
                f"{self.wrong:,} of {self.equations:,} equations in the answers are wrong: the model learns the form of"
                " a calculation, not its result",
                "drop the rows with a wrong equation, or have their answers written by a model that computes better",
                cases=self.cases,
                count=self.wrong,
                total=self.equations,
            )


def _is_right(left: str, right: str) -> bool:
    """Is the right side what the left side makes, as it is rounded?"""
    value = _value_of_sum(left)
    if value is None:
        return True
    result = Fraction(right.replace(",", "").replace("\u2212", "-"))
    decimals = len(right.partition(".")[2])
    is_quotient = any(sign in left for sign in DIVIDED)
    tolerance = Fraction(1, 10**decimals) if is_quotient or "." in left else Fraction(0)
    return abs(value - result) <= max(tolerance, ROUNDING * abs(value) if is_quotient else 0)


def _value_of_sum(text: str) -> Fraction | None:
    """The value of numbers with signs between them, products first; None where it divides by zero."""
    terms = [Fraction(0)]
    sign = "+"
    for part in PART.finditer(text.replace("$", "")):
        if part["sign"]:
            sign = part["sign"].strip()
            continue
        number = Fraction(part["number"].replace(",", ""))
        if sign in TIMES:
            terms[-1] *= number
        elif sign in DIVIDED:
            if not number:
                return None
            terms[-1] /= number
        else:
            terms.append(number if sign == "+" else -number)
    return sum(terms, Fraction(0))
