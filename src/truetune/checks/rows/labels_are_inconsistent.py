"""One label is written in several spellings, or one text has several labels.

## What it does
Judges answers that are the labels of a classification: short, few different ones, several rows each. It fires if a
label has two spellings that differ in case, marks or separators (`Positive`, `positive.`, `POSITIVE`), each in at
least 2 % of the rows and three rows. It fires too if texts have several labels (3 texts and 2 % of the rows; texts that
differ in case, spaces or marks are one), or if the labels of a part of the rows stand for other classes, by the words
of their texts, than in the rows before.

## Why it is bad
The probability of a right answer is shared among its spellings, and a comparison with the label fails on the others.
On a text with two labels, each step pulls towards another answer: the loss can't fall below it, and the model's
probabilities say nothing about its certainty.

## Example
```yaml
data:
  - {copies: 12, of: {instruction: "Rate: I liked it.", output: "positive"}}
  - {copies: 12, of: {instruction: "Rate: it was long.", output: "negative"}}
  - {copies: 12, of: {instruction: "Rate: what a day!", output: "Positive."}}
```

## Use instead
```yaml
data:
  - {copies: 12, of: {instruction: "Rate: I liked it.", output: "positive"}}
  - {copies: 12, of: {instruction: "Rate: it was long.", output: "negative"}}
  - {copies: 12, of: {instruction: "Rate: what a day!", output: "positive"}}
```

## Fix safety
It is safe to write all spellings of a label as one. Of a text with several labels keep the one of the majority, or
name all of them in one answer if they are all right.

## References
- Northcutt et al. 2021, Pervasive Label Errors in Test Sets (arXiv 2103.14749)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import blake2b

from truetune.checks.answer_diversity import LABEL, MOST_LABELS, ROWS_A_LABEL
from truetune.checks.base_of_rules_on_answer_texts import text_besides_answers
from truetune.checks.faults import Fault
from truetune.checks.find_labels_of_other_rows_by_words import (
    MAX_ROWS,
    RenamedLabels,
    find_renamed_labels,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.options_named_in_words import normal_label
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

MIN_LABELLED = 20
"""Rows from which answers are labels"""
# Chosen, not measured: a slip of an annotator is rarer, and two rows are chance.
MIN_SHARE, MIN_ROWS = 0.02, 3
"""Share and number of the rows that have a second spelling, or a text with several labels"""
ERROR_SHARE = 0.2
MAX_KEPT = 100_000
"""Texts whose label is kept, 8 bytes each"""
SHOWN_SPELLINGS = 3
MAX_CHARACTERS = 2_000
"""Of a text whose words tell its label"""
WORD = re.compile(r"\w+")


class LabelsAreInconsistent(DataRule):
    code = "ROW084"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("odd-metrics",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.long = 0
        self.spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.labels_by_text: dict[bytes, str] = {}
        self.contradicted: set[bytes] = set()
        self.contradicting = 0
        self.cases: list[Case] = []
        self.first_rows: list[tuple[str, str, Case]] = []
        """Text, label and place of the first rows"""

    def add_batch(self, batch: Batch) -> None:
        """Count the spellings of short answers, and texts that come again with another one."""
        for row in batch.rows:
            answer = (last_answer(row) or "").strip()
            if row.is_preference or row.text is not None or not answer:
                continue
            self.rows += 1
            if len(answer) > LABEL or "\n" in answer:
                self.long += 1
                continue
            label = normal_label(answer)
            if label in self.spellings or len(self.spellings) <= MOST_LABELS:
                self.spellings[label][answer] += 1
            self._compare_with_earlier_label(answer, label, batch, row)

    def _compare_with_earlier_label(
        self, answer: str, label: str, batch: Batch, row: Conversation
    ) -> None:
        """Note a text that came before with another label."""
        # Copies that differ in case, spaces or marks are one text.
        text = text_besides_answers(row)
        if len(self.first_rows) < MAX_ROWS:
            place = case_in_row(batch, row, f"the label is {answer!r}")
            self.first_rows.append((text[-MAX_CHARACTERS:], label, place))
        prompt = " ".join(WORD.findall(text.casefold())) or text
        key = blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if key not in self.labels_by_text and len(self.labels_by_text) >= MAX_KEPT:
            return
        first = self.labels_by_text.setdefault(key, label)
        if first == label:
            return
        self.contradicting += 1
        self.contradicted.add(key)
        if len(self.cases) < MAX_CASES:
            text = f"the answer is {answer!r}, and {first!r} in an earlier row"
            self.cases.append(case_in_row(batch, row, text))

    def _are_answers_labels(self) -> bool:
        """Are the answers few short texts with several rows each?"""
        count = len(self.spellings)
        is_labelled = self.rows >= MIN_LABELLED and not self.long
        return is_labelled and 2 <= count <= min(MOST_LABELS, self.rows // ROWS_A_LABEL)

    def unmet(self) -> Unmet | None:
        """Unmet where the answers are no labels."""
        is_one_label = len(self.spellings) == 1 and self._second_spellings()
        if self._are_answers_labels() or is_one_label:
            return None
        return Unmet("it is about answers that are labels: few short texts with several rows each")

    def measurement_if_clean(self) -> Measurement:
        """How many rows have a second spelling, or a text with another label."""
        count = self.contradicting + sum(one.total() for one in self._second_spellings().values())
        return make_count_measurement(
            "rows with a second spelling or a second label", count, self.rows
        )

    def _second_spellings(self) -> dict[str, Counter[str]]:
        """The labels that have several spellings in enough rows."""
        least = max(MIN_ROWS, MIN_SHARE * self.rows)
        frequent = {
            label: Counter({text: rows for text, rows in spellings.items() if rows >= MIN_ROWS})
            for label, spellings in self.spellings.items()
        }
        return {
            label: spellings
            for label, spellings in frequent.items()
            if len(spellings) > 1 and spellings.total() - max(spellings.values()) >= least
        }

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        several = self._second_spellings()
        if several:
            yield self._finding_on_spellings(several)
        if len(self.contradicted) >= MIN_ROWS and self.contradicting >= MIN_SHARE * self.rows:
            yield self.finding(
                f"{len(self.contradicted):,} texts have several labels ({self.contradicting:,} of {self.rows:,} rows"
                " contradict an earlier row): no model can learn them",
                "keep one label for each text, that of the majority; if all are right, name them in one answer",
                severity="error" if self.contradicting >= ERROR_SHARE * self.rows else "warning",
                cases=self.cases,
                count=self.contradicting,
                total=self.rows,
            )

        renamed = self._renamed_labels()
        if renamed is not None:
            yield self._finding_on_renamed(renamed)

    def _renamed_labels(self) -> RenamedLabels | None:
        """The part of the rows whose labels mean other classes."""
        texts = [text for text, _, _ in self.first_rows]
        return find_renamed_labels(texts, [label for _, label, _ in self.first_rows])

    def _finding_on_renamed(self, renamed: RenamedLabels) -> Finding:
        """The finding on a part of the rows whose labels mean other classes than before."""
        cases = [case for _, _, case in self.first_rows[renamed.first : renamed.first + MAX_CASES]]
        label, other = renamed.example
        return self.finding(
            f"from {cases[0].origin} on, labels stand for other classes than in the rows before: texts with {label!r}"
            f" are like those with {other!r}",
            "give the labels of all files their names by one table (ClassLabel, a dictionary) in the script that merges"
            " them: each file was numbered by a list of its own",
            evidence=[
                f"the words of the rows before tell {renamed.own:.0%} of these labels as they are, and"
                f" {renamed.renamed:.0%} if each is read as another"
            ],
            cases=cases,
            count=renamed.count,
            total=self.rows,
        )

    def _finding_on_spellings(self, several: dict[str, Counter[str]]) -> Finding:
        """The finding on labels with several spellings."""
        count = sum(one.total() - max(one.values()) for one in several.values())
        spellings = next(iter(several.values()))
        shown = ", ".join(
            f"{text!r} ({rows:,})" for text, rows in spellings.most_common(SHOWN_SPELLINGS)
        )
        return self.finding(
            f"{len(several):,} labels are written in several spellings, such as {shown}: the model splits its"
            " probability among them, and a comparison of texts counts the others as wrong",
            "write each label in one spelling in the script that makes the rows (answer.strip().lower(), a table of"
            " names), in the evaluation rows too",
            severity="error" if count >= ERROR_SHARE * self.rows else "warning",
            count=count,
            total=self.rows,
        )
