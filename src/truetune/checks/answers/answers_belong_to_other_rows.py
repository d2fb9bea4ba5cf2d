"""Answers are paired with the references of other rows.

## What it does
Finds the reference that each answer gives: the same words, a short reference inside a sentence, or far more rare words
in common than with any other. It fires if at least half of the answers give the reference of another row and hardly any
is given twice, which guessing does not do; or if they are off by the same number of rows, for all rows or from some row
on. If the references are a few labels, it tries the orders that scripts produce (shifted, reversed, sorted by prompt
length, gathered from several processes), unless swapped labels also explain the answers. Answers that are in their own
prompt don't count. If references show nothing, prompts and answers are compared by the rare words that they share, as
`answers-of-other-rows` does for training rows.

## Why it is bad
The model may be right each time, but every score that compares it with the references is at chance level.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers: [Lima is it., It is Oslo., I say Cairo., Doha of course., Quito., In Hanoi., It is Rome., Paris it is.]
    references: [Paris, Lima, Oslo, Cairo, Doha, Quito, Hanoi, Rome]
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers: [Paris it is., Lima is it., It is Oslo., I say Cairo., Doha of course., Quito., In Hanoi., It is Rome.]
    references: [Paris, Lima, Oslo, Cairo, Doha, Quito, Hanoi, Rome]
```

## Fix safety
There is no automatic fix. Keep the number of each row with its answer (`order = sorted(range(n), key=...)`, then
`answers[order[i]] = answer`), and sort by it before answers and references are joined. With several processes, gather
the numbers too.

## References

- huggingface/accelerate#1409, huggingface/transformers#22638
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_answers_standing_at_other_rows import (
    MIN_ROWS,
    case_of_displaced_answer,
    find_displaced_among,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import MAX_CASES, AnswersRule
from truetune.checks.shorten_text import quote_shortened
from truetune.data.conversation import Origin
from truetune.generation.answer_samples import Sample
from truetune.generation.find_answers_beside_wrong_rows import MIN_ELSEWHERE, RowOrder, row_order_of


class AnswersBelongToOtherRows(AnswersRule):
    code = "ANS016"
    fault = Fault.ANSWERS_COMPARED_WITH_OTHER_REFERENCES
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        samples = self._samples_of_last_pass()
        with_reference = sum(bool(sample.prompt.reference.strip()) for sample in samples)
        with_prompt = sum(
            bool(sample.prompt.question.strip()) for sample in self._samples_of_last_pass()
        )
        if with_reference < MIN_ELSEWHERE and with_prompt < MIN_ROWS:
            return Unmet(
                f"{with_reference} answers have a reference: too few to judge",
                f"name references, of {MIN_ELSEWHERE} answers or more, or prompts of {MIN_ROWS}",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers do not give the references, or belong to the prompts, of other rows."""
        samples = self._samples_of_last_pass()
        with_reference = sum(bool(sample.prompt.reference.strip()) for sample in samples)
        if with_reference < MIN_ELSEWHERE:
            return (
                f"{len(samples)} answers do not belong to the prompts of other rows in their order"
            )
        return f"{with_reference} answers do not give the references of other rows in their order"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        samples = self._samples_of_last_pass()
        row_order = row_order_of(samples)
        if row_order is None:
            yield from self._finding_by_words_shared_with_prompts()
            return
        order = row_order.order or "in an order that is neither a shift nor sorted by a length"
        yield self.finding(
            "answers are paired with the references of other rows, so the score is at chance level:"
            f" {row_order.elsewhere} of {row_order.examined_answers} give the reference of another row,"
            f" {row_order.in_place} their own; the answers are {order}",
            "put the answers back into the order of their rows: keep each row's number with its"
            " answer through sorting, batching and processes, and join by it",
            # Without this line a reader cannot tell it from a model that says the same to all.
            evidence=[_evidence_against_guessing(row_order)],
            cases=[
                _case_of_answer_of_other_row(samples, row, target)
                for row, target in sorted(row_order.targets.items())
            ],
            count=row_order.elsewhere,
            total=row_order.examined_answers,
        )

    def _finding_by_words_shared_with_prompts(self) -> Iterator[Finding]:
        """The finding that answers belong to other prompts, by the rare words that both share,
        whatever their references say.
        """
        samples = [
            one for one in self._samples_of_last_pass() if one.prompt.question and one.answer.text
        ]
        chunk = [(one.prompt.question, one.answer.text, _origin_of_sample(one)) for one in samples]
        displaced = find_displaced_among(chunk)
        if displaced is None:
            return
        count = displaced.last - displaced.first + 1
        where = f"from {chunk[displaced.first][2]} on"
        if displaced.is_among_sound_rows:
            message = f"{len(displaced.rows)} answers were swapped among each other, {where}"
        else:
            order = displaced.order and f": their own answers are {displaced.order}"
            message = f"{where}, {count} answers are paired with the prompts of other rows{order}"
        yield self.finding(
            message,
            "put the answers back into the order of their rows: keep each row's number with its"
            " answer through sorting, batching and processes, and join by it",
            evidence=[displaced.evidence],
            cases=[
                case_of_displaced_answer(chunk, row, int(displaced.targets[row]))
                for row in displaced.rows[:MAX_CASES]
            ],
            count=len(displaced.rows),
            total=len(samples),
        )

    def _samples_of_last_pass(self) -> tuple[Sample, ...]:
        """The answers of the last sampling pass."""
        return self.subject.looks[-1].samples


def _origin_of_sample(sample: Sample) -> Origin:
    """Where the row of an answer stands; its number where it is of no file."""
    prompt = sample.prompt
    return Origin(prompt.file or "row", prompt.line or prompt.row + 1, prompt.row)


def _evidence_against_guessing(row_order: RowOrder) -> str:
    """Evidence that answers do not equal other references by guessing."""
    different = len(set(row_order.targets.values()))
    return (
        f"they give {different} different references; a model that guesses would repeat some and leave out others."
        " No answer is copied from its prompt"
    )


def _case_of_answer_of_other_row(samples: tuple[Sample, ...], row: int, target: int) -> Case:
    """A question, its answer, and the row whose reference that is. Both are indices in `samples`."""
    own, other = samples[row].prompt, samples[target].prompt
    place = f"line {other.line}" if other.line else f"row {target + 1}"
    text = (
        f"{quote_shortened(own.question)} gives {quote_shortened(samples[row].answer.text)}, the"
        f" reference of {place}: {quote_shortened(other.question)}"
    )
    return Case(text, file=own.file or None, line=own.line if own.file else None)
