"""Label names are swapped: answers consistently give one label when the reference is another.

## What it does
If references are a few labels, it counts which label answers which, and looks for one renaming of the labels that makes
the answers right. It fires if 75 % are right under it and far fewer without it. It needs 30 answers that name a label.

## Why it is bad
The model tells the classes apart, but the score is worse than guessing. A list of names has another order in the
evaluation than in training (`["positive", "negative"]` for 0 and 1). Or the training rows were made with swapped names;
then what the model serves is wrong too.

## Example

```yaml
finished: true
looks:
  - step: 0
    prompts: 32
    answers: [ham, ham, spam, ham, spam, ham, ham, spam, ham, ham, spam, ham, spam, ham, ham, spam,
              ham, ham, spam, ham, spam, ham, ham, spam, ham, ham, spam, ham, spam, ham, ham, spam]
    references: [spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham,
                 spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham]
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    prompts: 32
    answers: [spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham,
              spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham]
    references: [spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham,
                 spam, spam, ham, spam, ham, spam, spam, ham, spam, spam, ham, spam, ham, spam, spam, ham]
```

## Fix safety
There is no automatic fix. Compare the list of names in the script that made the training rows with the one that made
the references, and read three rows of each by hand. Which of the two is right decides what has to be made again.

## References

- huggingface/transformers#10086 (`label2id` of another order than the data's)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import split_words

# Answers with a label. Of 30 answers that are guessed among two labels, 23 (three quarters) are exchanged once in 400
# data sets; of 15 once in 60. At double, small test sets would not be judged.
MIN_LABELLED_ANSWERS = 30
# Chosen, not measured: with more names a renaming finds a fit by chance, and texts are no labels any more.
MAX_LABELS = 20
# References of a label that is judged: of one or two the commonest answer is an accident.
MIN_ROWS_OF_LABEL = 3
# Share of the references that are labels, and of the answers in which one stands; the others may be refusals.
MIN_LABELLED_SHARE = 0.8
# Share that is right under a renaming, and how much more that is than without it. Chosen: a weak classifier of two
# labels reaches 0.6; one that is right in three of four is one. At 0.2 more, exchanged and merely bad would be one.
MIN_RIGHT_SHARE = 0.75
MIN_GAIN = 0.4


class LabelledAnswer(NamedTuple):
    """An answer that names a label, beside a reference that is one."""

    answer: str
    reference: str
    sample: Sample


class Renaming(NamedTuple):
    """Which label stands for which in the references."""

    names: dict[str, str]
    """Label of the answers -> label of the references; of those that differ"""
    right: int
    """Answers that are right under it"""
    as_it_is: int
    """Answers that are right without it"""
    of: int


class LabelsAreExchanged(AnswersRule):
    code = "ANS021"
    fault = Fault.LABEL_NAMES_MIXED_UP
    severity = "error"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._labelled_answers():
            return Unmet(
                f"references are not labels, or fewer than {MIN_LABELLED_ANSWERS} answers name one",
                "name references (--map reference=COLUMN) of 30 answers or more",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers give the label of their reference."""
        labelled = self._labelled_answers()
        right = sum(one.answer == one.reference for one in labelled)
        return f"{right} of {len(labelled)} answers give the label of their reference"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        labelled = self._labelled_answers()
        renaming = _find_label_renaming(labelled)
        if renaming is None:
            return
        swapped = ", ".join(
            f"{answer} meant {reference}" for answer, reference in sorted(renaming.names.items())
        )
        yield self.finding(
            f"labels are swapped between answers and references: {renaming.as_it_is} of {renaming.of} are right, but"
            f" {renaming.right} would be if {swapped}",
            "compare the order of the label names in the script that made the training rows with that of the"
            " references: set(...) and list(set(...)) have another order in each process. Use one sorted list, or"
            " the config's id2label, and read a few rows by hand",
            cases=cases_of_samples([one.sample for one in labelled if one.answer != one.reference]),
            count=renaming.of - renaming.as_it_is,
            total=renaming.of,
        )

    def _labelled_answers(self) -> list[LabelledAnswer]:
        """The answers of the last pass that name a label; empty where references are none, or few answers do."""
        samples = self.subject.looks[-1].samples if self.subject.looks else ()
        with_reference = [sample for sample in samples if sample.prompt.reference.strip()]
        labels = _label_set_of_references([sample.prompt.reference for sample in with_reference])
        labelled = []
        for sample in with_reference if labels else ():
            answer = _only_label_in(sample.answer.text, labels)
            reference = _normalise(sample.prompt.reference)
            if answer is not None and reference in labels:
                labelled.append(LabelledAnswer(answer, reference, sample))
        is_enough = len(labelled) >= max(
            MIN_LABELLED_ANSWERS, MIN_LABELLED_SHARE * len(with_reference)
        )
        return labelled if is_enough else []


def _label_set_of_references(references: Sequence[str]) -> list[str]:
    """The labels that nearly all references are; empty where they are texts, or all the same."""
    counts = Counter(map(_normalise, references))
    labels = [label for label, rows in counts.items() if rows >= MIN_ROWS_OF_LABEL]
    labelled_rows = sum(counts[label] for label in labels)
    are_labels = labelled_rows >= MIN_LABELLED_SHARE * len(references)
    return labels if are_labels and 2 <= len(labels) <= MAX_LABELS else []


def _normalise(text: str) -> str:
    """A text without case, punctuation and differences of white space."""
    return " ".join(split_words(text))


def _only_label_in(answer: str, labels: Sequence[str]) -> str | None:
    """The one label that an answer is or holds; None where it holds none, or several."""
    words = _normalise(answer)
    if words in labels:
        return words
    # With spaces around both, so that `negative` is not read in `nonnegative`.
    held = [label for label in labels if f" {label} " in f" {words} "]
    return held[0] if len(held) == 1 else None


def _find_label_renaming(labelled: Sequence[LabelledAnswer]) -> Renaming | None:
    """The one renaming of labels that makes the answers right, if they are not right without it;
    each label stands for one other.
    """
    counts = Counter((one.answer, one.reference) for one in labelled)
    names = _commonest_reference_of_each_label(counts)
    renamed = {answer: reference for answer, reference in names.items() if answer != reference}
    is_one_to_one = len(set(names.values())) == len(names)
    # Exchanged labels are the same set on both sides; else the answers name something that the data does not know.
    if not renamed or not is_one_to_one or set(renamed) != set(renamed.values()):
        return None
    right = sum(counts[answer, reference] for answer, reference in names.items())
    as_it_is = sum(counts[answer, answer] for answer in names)
    if right < MIN_RIGHT_SHARE * len(labelled) or right - as_it_is < MIN_GAIN * len(labelled):
        return None
    return Renaming(renamed, right, as_it_is, len(labelled))


def _commonest_reference_of_each_label(counts: Counter[tuple[str, str]]) -> dict[str, str]:
    """For each label of the answers the label that most of their references have."""
    names: dict[str, str] = {}
    for answer, reference in counts:
        if answer not in names or counts[answer, reference] > counts[answer, names[answer]]:
            names[answer] = reference
    return names
