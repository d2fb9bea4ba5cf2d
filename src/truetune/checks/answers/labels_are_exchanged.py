"""Answers give one label where the references have another, always the same one: label names were exchanged.

## What it does

Where references are a few labels, it counts which label answers which, and looks for one renaming of the labels under
which the answers are right. It fires where three of four are right under it and far fewer without it.

## Why it is bad

The model tells the classes apart, and a score says that it is worse than a guess. A list of names stands in another
order in the evaluation than in the training (`["positive", "negative"]` for 0 and 1), or training rows were made with
the names exchanged: then what is served is wrong as well.

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

There is no automatic fix. Compare the lists of names in the script that made the training rows with the one that made
the references, and read three rows of each by hand: which of the two is right decides what has to be made again.

## References

- huggingface/transformers#10086 (`label2id` of another order than the data's)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.answers.bad_answers import cases
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import split_words

ENOUGH = 30
"""Answers with a label; among so many two labels that are guessed are exchanged in a quarter or less by no chance"""
MOST_LABELS = 20
PER_LABEL = 3
"""References of a label that is judged"""
TOLD = 0.8
"""Share of the answers in which one label stands"""
RIGHT, GAIN = 0.75, 0.4
"""Share that is right under a renaming, and how much more that is than without it"""


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
    severity = "error"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._labelled():
            return Unmet(
                f"references are no labels, or fewer than {ENOUGH} answers name one",
                "name references (--map reference=COLUMN) of 30 answers or more",
            )
        return None

    def figure(self) -> str:
        pairs = self._labelled()
        right = sum(said == wanted for said, wanted, _ in pairs)
        return f"{right} of {len(pairs)} answers give the label of their reference"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        pairs = self._labelled()
        found = _renaming([(said, wanted) for said, wanted, _ in pairs])
        if found is None:
            return
        swapped = ", ".join(f"{said} is {wanted}" for said, wanted in sorted(found.names.items()))
        yield self.finding(
            f"labels are exchanged between answers and references: {found.as_it_is} of {found.of} are right,"
            f" and {found.right} where {swapped}",
            "compare the order of the label names in the script that made the training rows with that of the"
            " references; read a few rows by hand",
            cases=cases([sample for said, wanted, sample in pairs if said != wanted]),
            count=found.of - found.as_it_is,
            total=found.of,
        )

    def _labelled(self) -> list[tuple[str, str, Sample]]:
        """(label of the answer, label of the reference, sample) of the last look; empty where references are none."""
        samples = self.subject.looks[-1].samples if self.subject.looks else ()
        known = [sample for sample in samples if sample.prompt.reference.strip()]
        counts = Counter(_plain(sample.prompt.reference) for sample in known)
        labels = [label for label, rows in counts.items() if rows >= PER_LABEL]
        few = 2 <= len(labels) <= MOST_LABELS
        if not few or sum(counts[label] for label in labels) < TOLD * len(known):
            return []
        pairs = []
        for sample in known:
            said, wanted = _label_in(sample.answer.text, labels), _plain(sample.prompt.reference)
            if said is not None and wanted in labels:
                pairs.append((said, wanted, sample))
        return pairs if len(pairs) >= max(ENOUGH, TOLD * len(known)) else []


def _plain(text: str) -> str:
    """Without case, punctuation and differences of white space."""
    return " ".join(split_words(text))


def _label_in(answer: str, labels: Sequence[str]) -> str | None:
    """The one label that an answer is or holds; None where it holds none, or several."""
    plain = _plain(answer)
    if plain in labels:
        return plain
    held = [label for label in labels if f" {label} " in f" {plain} "]
    return held[0] if len(held) == 1 else None


def _renaming(pairs: Sequence[tuple[str, str]]) -> Renaming | None:
    """One renaming that makes the answers right, where they are not without it; each label stands for one."""
    answered = Counter(said for said, _ in pairs)
    both = Counter(pairs)
    names = {
        said: max((wanted for one, wanted in both if one == said), key=lambda w: both[said, w])
        for said in answered
    }
    differ = {said: wanted for said, wanted in names.items() if said != wanted}
    right = sum(rows for (said, wanted), rows in both.items() if names[said] == wanted)
    as_it_is = sum(rows for (said, wanted), rows in both.items() if said == wanted)
    is_renaming = len(set(names.values())) == len(names) and set(differ) == set(differ.values())
    if not differ or not is_renaming:
        return None
    if right < RIGHT * len(pairs) or right - as_it_is < GAIN * len(pairs):
        return None
    return Renaming(differ, right, as_it_is, len(pairs))
