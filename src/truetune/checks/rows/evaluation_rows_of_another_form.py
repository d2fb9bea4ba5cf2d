"""Evaluation rows lack their answers, or are asked or answered in another form than the training rows.

## What it does
Compares the rows of the evaluation data with those of the training. It fires if

- 5 % of the evaluation rows have an empty answer,
- nearly all training rows (90 %) have a system prompt and hardly any evaluation row (10 %) has one, or the reverse,
- nearly all training prompts begin or end with the same line, and hardly any evaluation prompt does,
- the training answers are labels, and most evaluation answers are none of them, or are in another spelling.

## Why it is bad
The loss and the score of the evaluation are those of another task: they stay bad while the training works, and the
best checkpoint is chosen by chance. An empty answer counts as wrong, or adds nothing but the stop token to eval_loss.

## Example
```yaml
data:
  - {copies: 12, of: {instruction: "Rate: I liked it.", output: "positive"}}
  - {copies: 12, of: {instruction: "Rate: it was long.", output: "negative"}}
eval_data:
  - {copies: 12, of: {instruction: "Rate: a fine day.", output: "POSITIVE"}}
```

## Use instead
```yaml
data:
  - {copies: 12, of: {instruction: "Rate: I liked it.", output: "positive"}}
  - {copies: 12, of: {instruction: "Rate: it was long.", output: "negative"}}
eval_data:
  - {copies: 12, of: {instruction: "Rate: a fine day.", output: "positive"}}
```

## Fix safety
Make both files with the same code: it is safe, and only scores of earlier evaluations can't be compared any more.

## References
- Wang et al. 2018, GLUE (arXiv 1804.07461; the labels of its test sets are private)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from truetune.checks.answer_diversity import LABEL, MOST_LABELS, ROWS_A_LABEL
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer, last_user_text
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.options_named_in_words import normal_label
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

# Chosen, not measured: of fewer rows a share is known to some ten percent only.
MIN_TRAINED, MIN_EVALUATED = 20, 10
MIN_EMPTY_SHARE, MIN_EMPTY = 0.05, 3
NEARLY_ALL, HARDLY_ANY = 0.9, 0.1
MIN_OTHER_LABELS = 0.5
"""Share of the evaluation answers that are no label of the training"""
MIN_LINE = 12
"""Characters of a line that rows share: shorter ones are marks"""
MAX_KEPT = 2_000


class _Form:
    """What is counted of the rows of one side."""

    def __init__(self) -> None:
        self.rows = self.systems = self.long = 0
        self.first: Counter[str] = Counter()
        self.last: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def add(self, row: Conversation) -> str:
        """Count a row, and give its answer without white space around it."""
        self.rows += 1
        self.systems += any(one.get("role") == "system" for one in row.messages)
        lines = [line.strip() for line in last_user_text(row).strip().split("\n")]
        self._count(self.first, lines[0])
        self._count(self.last, lines[-1])
        answer = (last_answer(row) or "").strip()
        self.long += len(answer) > LABEL
        if len(answer) <= LABEL:
            self._count(self.answers, answer)
        return answer

    @staticmethod
    def _count(counter: Counter[str], text: str) -> None:
        if text in counter or len(counter) < MAX_KEPT:
            counter[text] += 1

    @property
    def are_answers_labels(self) -> bool:
        """Are the answers few short texts with several rows each?"""
        count = len(self.answers)
        return not self.long and 2 <= count <= min(MOST_LABELS, self.rows // ROWS_A_LABEL)


class EvaluationRowsOfAnotherForm(DataRule):
    code = "ROW089"
    fault = Fault.EVALUATION_ROWS_NOT_REPRESENTATIVE
    symptoms = ("odd-metrics",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.trained, self.evaluated = _Form(), _Form()
        self.empty = 0
        self.cases: list[Case] = []

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Count the forms of the evaluation rows."""
        for row in rows:
            if row.is_preference or row.text is not None:
                continue
            if self.evaluated.add(row) or _has_calls(row):
                continue
            self.empty += 1
            if len(self.cases) < MAX_CASES:
                self.cases.append(Case("the answer is empty", row.origin))

    def add_batch(self, batch: Batch) -> None:
        """Count the forms of the training rows."""
        for row in batch.rows:
            if not row.is_preference and row.text is None:
                self.trained.add(row)

    def unmet(self) -> Unmet | None:
        """Unmet where either side has too few rows."""
        if self.trained.rows >= MIN_TRAINED and self.evaluated.rows >= MIN_EVALUATED:
            return None
        return Unmet(
            f"it is about {MIN_TRAINED} training rows and {MIN_EVALUATED} evaluation rows or more with questions"
        )

    def measurement_if_clean(self) -> Measurement:
        """How many evaluation rows have no answer."""
        return make_count_measurement(
            "evaluation rows without an answer", self.empty, self.evaluated.rows
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        total = self.evaluated.rows
        if self.empty >= max(MIN_EMPTY, MIN_EMPTY_SHARE * total):
            yield self.finding(
                f"{self.empty:,} of {total:,} evaluation rows have an empty answer: nothing can be compared with it",
                "fill the answers, or drop these rows; published test sets often come without their labels, so split"
                " rows off the training data",
                severity="error" if self.empty >= NEARLY_ALL * total else "warning",
                cases=self.cases,
                count=self.empty,
                total=total,
            )
        told = [one for one in (self._system_prompts(), self._shared_line(), self._labels()) if one]
        if told:
            yield self.finding(
                f"the {total:,} evaluation rows are of another form than the training rows: {'; '.join(told)}",
                "make the training and the evaluation file with the same code",
                count=total,
                total=total,
            )

    def _system_prompts(self) -> str:
        """What to say where one side alone has system prompts."""
        trained = self.trained.systems / self.trained.rows
        evaluated = self.evaluated.systems / self.evaluated.rows
        if min(trained, evaluated) > HARDLY_ANY or max(trained, evaluated) < NEARLY_ALL:
            return ""
        return f"{trained:.0%} of the training rows have a system prompt, {evaluated:.0%} of the evaluation rows"

    def _shared_line(self) -> str:
        """What to say where the training prompts share a line that the evaluation prompts lack."""
        for place, trained, evaluated in (
            ("begin", self.trained.first, self.evaluated.first),
            ("end", self.trained.last, self.evaluated.last),
        ):
            (line, rows), *_ = trained.most_common(1)
            is_shared = rows >= NEARLY_ALL * self.trained.rows and len(line) >= MIN_LINE
            if is_shared and evaluated[line] <= HARDLY_ANY * self.evaluated.rows:
                return f"the training prompts {place} with {line[:60]!r}, and {evaluated[line]:,} evaluation prompts do"
        return ""

    def _labels(self) -> str:
        """What to say where the evaluation answers are other labels than those of the training."""
        if not self.trained.are_answers_labels or self.evaluated.long:
            return ""
        labels = self.trained.answers
        others = Counter(
            {
                answer: rows
                for answer, rows in self.evaluated.answers.items()
                if answer and answer not in labels
            }
        )
        if others.total() < MIN_OTHER_LABELS * self.evaluated.rows:
            return ""
        plain = {normal_label(label) for label in labels}
        (answer, _), *_ = others.most_common(1)
        is_spelling = normal_label(answer) in plain
        what = "another spelling of the labels" if is_spelling else "no label of the training"
        return f"{others.total():,} evaluation answers are {what}, such as {answer!r}"


def _has_calls(row: Conversation) -> bool:
    """Does a chat end in calls of tools, which need no words?"""
    return any(one.get("tool_calls") for one in row.messages[-1:])
