"""Finds which label an answer says, where the references are a few labels, and counts how many are right.

An answer seldom is the label and nothing else: `Supported: 77 patients ...` says `supported`, and `not supported` does
not, where that is another label. Labels are found as whole words, the longest first, so that `supported` is not read
in `unsupported`. What is right depends on how an answer with several labels is read, so both readings are counted: the
first label, and the only one.

The trade-off: only labels that stand in the references are known. An answer in other words (`positive` for `good`)
names none, and is counted so (`without_label`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from truetune.generation.answer_samples import Sample
from truetune.generation.final_answers import find_final_answer, holds_final_answer
from truetune.generation.json_faults_of_answers import json_fault
from truetune.generation.split_words import split_words

# Chosen, not measured: with more names references are texts, and of one or two rows a name is an accident.
MAX_LABELS, MIN_ROWS_OF_LABEL = 20, 3
# Both chosen, not measured: `neither agree nor disagree` has four.
MAX_LABEL_WORDS = 5
"""Words of a label"""
MIN_LABELLED_SHARE = 0.8
"""Share of the references that are labels; the others may be refusals"""


@dataclass(frozen=True)
class LabelScores:
    """Answers whose references are labels, by how they are read."""

    labels: tuple[str, ...]
    references: tuple[str, ...]
    """(rows,) the label of each reference"""
    found: tuple[tuple[str, ...], ...]
    """(rows,) the labels of each answer, in the order of the text"""
    in_text: tuple[bool, ...]
    """(rows,) does the reference stand in the answer as a string, be it inside of a word (`reference in answer`)?"""

    @property
    def rows(self) -> int:
        """Answers with a label as their reference."""
        return len(self.references)

    @cached_property
    def right_count_by_first_label(self) -> int:
        """Answers whose first label is that of the reference."""
        pairs = zip(self.found, self.references, strict=True)
        return sum(labels[:1] == (reference,) for labels, reference in pairs)

    @cached_property
    def right_count_by_only_label(self) -> int:
        """Answers whose only label is that of the reference."""
        pairs = zip(self.found, self.references, strict=True)
        return sum(set(labels) == {reference} for labels, reference in pairs)

    @property
    def right_count_by_substring(self) -> int:
        """Answers that `reference in answer` counts as right."""
        return sum(self.in_text)

    @cached_property
    def substring_right_first_label_wrong_count(self) -> int:
        """Of those, the answers whose first label is another."""
        rows = zip(self.in_text, self.found, self.references, strict=True)
        return sum(
            here and bool(found) and found[0] != reference for here, found, reference in rows
        )

    @property
    def without_label(self) -> int:
        """Answers that name no label."""
        return sum(not labels for labels in self.found)

    @property
    def answer_count_with_several_labels(self) -> int:
        """Answers that name several labels."""
        return sum(len(set(labels)) > 1 for labels in self.found)

    @cached_property
    def right_and_row_counts_by_label(self) -> dict[str, tuple[int, int]]:
        """Label -> (answers that are right by their first label, rows of it), the commonest first."""
        rows = Counter(self.references)
        pairs = zip(self.found, self.references, strict=True)
        right = Counter(reference for found, reference in pairs if found[:1] == (reference,))
        return {label: (right[label], count) for label, count in rows.most_common()}

    @property
    def row_count_of_commonest_label(self) -> int:
        """Rows of the commonest label: what an answer that never changes gets."""
        return max(count for _, count in self.right_and_row_counts_by_label.values())

    @cached_property
    def labels_contained_in_longer_labels(self) -> tuple[tuple[str, str], ...]:
        """(label, longer label) where one stands in the other as a string."""
        return tuple(
            (one, other)
            for one in self.labels
            for other in self.labels
            if one != other and one in other
        )

    def plain(self) -> dict[str, Any]:
        """The scores as plain values for a JSON report."""
        return {
            "rows": self.rows,
            "right_by_first_label": self.right_count_by_first_label,
            "right_by_only_label": self.right_count_by_only_label,
            "right_by_reference_in_answer": self.right_count_by_substring,
            "commonest_label": self.row_count_of_commonest_label,
            "recall": {
                label: list(counts) for label, counts in self.right_and_row_counts_by_label.items()
            },
            "without_label": self.without_label,
            "with_several": self.answer_count_with_several_labels,
        }


def score_labels(answers: Sequence[str], references: Sequence[str]) -> LabelScores | None:
    """The answers beside their labels; None where the references are no labels."""
    labels = find_labels(references)
    if not labels:
        return None
    by_words = {tuple(label.split()): label for label in labels}
    rows = [
        (answer, reference, normalised)
        for answer, reference in zip(answers, references, strict=True)
        if (normalised := _normalise_for_comparison(reference)) in labels
    ]
    return LabelScores(
        tuple(labels),
        tuple(normalised for _, _, normalised in rows),
        tuple(_labels_in_answer(answer, by_words) for answer, _, _ in rows),
        tuple(reference.strip().casefold() in answer.casefold() for answer, reference, _ in rows),
    )


def find_labels(references: Sequence[str]) -> list[str]:
    """The labels that nearly all references are; empty where they are texts, numbers, letters, or all the same."""
    counts = Counter(_normalise_for_comparison(one) for one in references if one.strip())
    labels = [
        label
        for label, rows in counts.items()
        if rows >= MIN_ROWS_OF_LABEL and len(label.split()) <= MAX_LABEL_WORDS
    ]
    labelled_rows = sum(counts[label] for label in labels)
    if labelled_rows < MIN_LABELLED_SHARE * counts.total() or not 2 <= len(labels) <= MAX_LABELS:
        return []
    # Numbers and single letters stand in many answers that do not mean them: their last mark tells.
    are_names = all(len(label) > 1 and not label[0].isdigit() for label in labels)
    return labels if are_names else []


def gives_reference(answer: str, reference: str, labels: Sequence[str]) -> bool | None:
    """Does an answer give its reference? None where that can't be told of a text.

    Args:
        answer: whatever the model wrote.
        reference: what it should say.
        labels: what `find_labels` makes of all references.
    """
    wanted = _normalise_for_comparison(reference)
    if not wanted:
        return None
    if answer.split() == reference.split():
        return True
    if wanted in labels:
        return _says_wanted_label(answer, wanted, labels)
    final = find_final_answer(reference)
    if final is None:
        # The whole text at one end, with more before or behind it.
        words = _normalise_for_comparison(answer)
        return True if f" {wanted} " in f" {words} " else None
    return _gives_final_answer(answer, reference, final.kind)


def _gives_final_answer(answer: str, reference: str, kind: str) -> bool | None:
    """Does an answer give the final answer of its reference, which is of this kind? None where that can't be told."""
    if kind == "json":
        # A caller reads one value: one that stands in the answer twice, or inside of another, is none.
        return json_fault(answer) in (None, "have other text around it") and holds_final_answer(
            answer, reference
        )
    if holds_final_answer(answer, reference):
        return True
    # `So it must be B here`: a letter without a mark is not told from a word.
    if kind == "letter" and find_final_answer(answer) is None:
        return None
    return False if kind in ("number", "letter") or _is_only_a_short_answer(reference) else None


def mark_whether_answers_give_reference(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of one sampling_pass, with `Scores.gives`."""
    labels = find_labels([sample.prompt.reference for sample in samples])
    return tuple(
        replace(
            sample,
            scores=replace(
                sample.scores,
                gives=gives_reference(sample.answer.text, sample.prompt.reference, labels),
            ),
        )
        for sample in samples
    )


def _says_wanted_label(answer: str, wanted: str, labels: Sequence[str]) -> bool | None:
    """Does an answer say its label? None where it names that one among others."""
    by_words = {tuple(label.split()): label for label in labels}
    found = _labels_in_answer(answer, by_words)
    if not found:
        return False
    # `Supported: ... is not refuted`: an answer that begins with a label says that one, whatever comes behind it.
    begins_with_label = f"{_normalise_for_comparison(answer)} ".startswith(f"{found[0]} ")
    if not begins_with_label and len(set(found)) > 1 and wanted in found:
        return None
    return found[0] == wanted


def _labels_in_answer(answer: str, by_words: dict[tuple[str, ...], str]) -> tuple[str, ...]:
    """The labels of an answer in the order of its text; of several that begin at one word the longest."""
    words = split_words(answer)
    lengths = sorted({len(label) for label in by_words}, reverse=True)
    labels_in_order, at = [], 0
    while at < len(words):
        starting = (tuple(words[at : at + length]) for length in lengths)
        label = next((one for one in starting if one in by_words), None)
        if label is not None:
            labels_in_order.append(by_words[label])
        at += len(label) if label is not None else 1
    return tuple(labels_in_order)


def _is_only_a_short_answer(reference: str) -> bool:
    """Is it an answer of a few words and nothing else?"""
    return len(split_words(reference)) <= MAX_LABEL_WORDS and "\n" not in reference.strip()


def _normalise_for_comparison(text: str) -> str:
    """A text without case, punctuation and differences of white space."""
    return " ".join(split_words(text))
