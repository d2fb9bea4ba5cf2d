"""Answers give their reference in other words, so that exact match measures their form.

## What it does

Compares the answers of a finished model with their references, where no parser is named. It fires where at most 1 of 10
is its reference word for word, and at least 1 of 5 gives the same final answer in another form: the number at the end
of a sentence, the letter behind `Answer:`, the words of the reference in a longer text, JSON between other text. With a
parser or without, it fires as well where nearly all references mark their final answer in one way (`####`) and nearly
all answers in another (`\\boxed{}`).

Where nearly all answers begin with a reasoning block (`<think>...</think>`) that the references have not, it says so,
and how many are their reference without it.

## Why it is bad

Exact match is near 0 whatever the model knows: it counts how often the form is met. A comparison of two models by it
says which one writes bare answers. A script that looks for the mark of the references reads nothing of any answer.

## Example

```yaml
finished: true
looks:
  - step: 0
    answers: ["3 * 4 = 12.", "That is 7.", "So it is 9.", "The answer is 5.", "2.", "I think 8.", "40", "It is 6."]
    references: ["12", "7", "9", "5", "11", "8", "41", "6"]
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    answers: ["12", "7", "9", "5", "2", "8", "40", "6"]
    references: ["12", "7", "9", "5", "11", "8", "41", "6"]
```

## Fix safety

There is no automatic fix. Name a parser that reads both answers and references; if the form is what is wanted, train on
references of that form.

## References

- EleutherAI/lm-evaluation-harness#2707, EleutherAI/lm-evaluation-harness#3404
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from truetune.checks.answers.bad_answers import ENOUGH, cases
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.answer_verdicts import answer_faults
from truetune.generation.final_answers import (
    MARK_NAMES,
    MAX_ANSWER_WORDS,
    answer_marks,
    find_final_answer,
    holds_final_answer,
    normalise_reading,
)
from truetune.generation.split_words import split_words
from truetune.render.render_plan import THINK_END

EXACT, HELD = 0.1, 0.2
"""Shares of the answers: at most so many are the reference, and at least so many give it in another form. One of ten
wrong numbers equals the right digit by chance, so that 1 of 5 is beyond it."""
MOST, FEW = 0.8, 0.1
"""Shares of the texts that have a mark, and of the answers that may have that of the references too: a model leaves the
mark out now and then, most of all where it was cut"""
FAULTY = frozenset(("empty", "garbage", "echo", "role markers", "loop", "language"))
"""Verdicts on answers whose form is not what is wrong with them"""
PARSERS = {"number": "number", "letter": "choice", "json": "json"}
"""Kind of final answer -> the parser that reads it"""


class ExactMatchMeasuresForm(AnswersRule):
    code = "ANS015"
    severity = "info"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._marks() is not None:
            return None
        if any(sample.scores.parsed is not None for sample in self.subject.looks[-1].samples):
            return Unmet("a parser is named, which reads the answers in any form")
        known = len(self._known())
        if known < ENOUGH:
            return Unmet(
                f"{known} answers have a reference: too few to judge",
                "name references, of 8 answers or more",
            )
        return None

    def figure(self) -> str:
        known = self._known()
        exact = sum(map(_is_exact, known))
        return (
            f"{exact} of {len(known)} answers are their reference, {len(_in_another_form(known))}"
            " give it otherwise"
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None or not self.subject.finished:
            return
        marks = self._marks()
        if marks is not None:
            yield self._marked_otherwise(*marks)
            return
        known = self._known()
        exact = sum(map(_is_exact, known))
        if exact > EXACT * len(known):
            return
        held = _in_another_form(known)
        is_held = len(held) >= HELD * len(known)
        reasoned = [sample for sample in known if _adds_reasoning(sample)]
        equal = sum(map(_is_exact_behind_thought, reasoned))
        if len(reasoned) >= MOST * len(known) and (equal >= HELD * len(known) or not is_held):
            yield self._behind_reasoning(reasoned, equal, len(known))
            return
        if not is_held:
            return
        parser = _parser_for(held)
        yield self.finding(
            f"exact match measures the form of these answers: {exact} of {len(known)} are their"
            f" reference word for word, and {len(held)} more give it in another form; --parser"
            f" {parser} reads both",
            f"name a parser (--parser {parser}) to count right answers, or train on references of"
            " the form that is wanted",
            cases=cases(held),
            count=len(held),
            total=len(known),
        )

    def _behind_reasoning(self, reasoned: list[Sample], equal: int, of: int) -> Finding:
        """That answers begin with reasoning, which a comparison of whole texts counts as wrong."""
        return self.finding(
            f"{len(reasoned)} of {of} answers hold a reasoning block that their references have not"
            f" (up to {THINK_END}): with it none of them is its reference, without it {equal} are",
            f"compare only what is behind {THINK_END}, or generate without reasoning"
            " (enable_thinking=False in the chat template of Qwen3)",
            severity="warning" if equal >= HELD * of else "info",
            cases=cases(reasoned),
            count=len(reasoned),
            total=of,
        )

    def _marks(self) -> tuple[str, str] | None:
        """The mark of the references and the other one of the answers, where nearly all have theirs."""
        known = self._known()
        if len(known) < ENOUGH or not self.subject.finished:
            return None
        theirs = _common_mark([sample.prompt.reference for sample in known])
        ours = _common_mark([sample.answer.text for sample in known])
        if theirs is None or ours is None or theirs == ours:
            return None
        both = sum(theirs in answer_marks(sample.answer.text) for sample in known)
        return None if both > FEW * len(known) else (theirs, ours)

    def _marked_otherwise(self, theirs: str, ours: str) -> Finding:
        known = self._known()
        with_mark = [sample for sample in known if ours in answer_marks(sample.answer.text)]
        return self.finding(
            f"{len(with_mark)} of {len(known)} answers give their result as {ours}, the references as {theirs}: a"
            f" script that looks for {theirs} reads nothing of the answers, and its accuracy is 0",
            f"read {ours} as well ({ours} first, then {theirs}, then the last number: --parser number reads both), or"
            " train on answers that end as the references do",
            severity="warning",
            cases=cases(with_mark),
            count=len(with_mark),
            total=len(known),
        )

    def _known(self) -> list[Sample]:
        """Answers of the last look that have a reference."""
        return [
            sample for sample in self.subject.looks[-1].samples if sample.prompt.reference.strip()
        ]


def _common_mark(texts: Sequence[str]) -> str | None:
    """The mark of a final answer that nearly all texts have, the surest first; None where there is none."""
    counts = Counter(mark for text in texts for mark in answer_marks(text))
    return next((mark for mark in MARK_NAMES if counts[mark] >= MOST * len(texts)), None)


def _adds_reasoning(sample: Sample) -> bool:
    """Does the answer end a reasoning block, and its reference none?"""
    return THINK_END in sample.answer.text and THINK_END not in sample.prompt.reference


def _is_exact_behind_thought(sample: Sample) -> bool:
    """Is what the answer says behind its reasoning its reference, white space aside?"""
    said = sample.answer.text.rpartition(THINK_END)[2]
    return said.split() == sample.prompt.reference.split()


def _is_exact(sample: Sample) -> bool:
    """Is the answer its reference, white space aside?"""
    return sample.answer.text.split() == sample.prompt.reference.split()


def _in_another_form(known: Sequence[Sample]) -> list[Sample]:
    """Sound answers that give their reference, and are not it. One that loops may hold it too: its fault is another."""
    sound = (
        sample
        for sample in known
        if not _is_exact(sample) and not (set(answer_faults(sample, NO_LIMIT)) & FAULTY)
    )
    return [sample for sample in sound if _gives(sample.answer.text, sample.prompt.reference)]


def _gives(answer: str, reference: str) -> bool:
    """Does the answer hold the whole reference? A number is not enough where the reference says of what: `room 5`."""
    final, wanted = find_final_answer(reference), split_words(reference)
    is_labelled_number = (
        final is not None and final.kind == "number" and normalise_reading(reference) is None
    )
    if is_labelled_number and len(wanted) <= MAX_ANSWER_WORDS:
        return f" {' '.join(wanted)} " in f" {' '.join(split_words(answer))} "
    return holds_final_answer(answer, reference)


def _parser_for(samples: Sequence[Sample]) -> str:
    """The parser that reads most of the references."""
    finals = (find_final_answer(sample.prompt.reference) for sample in samples)
    ((kind, _),) = Counter(final.kind if final else "word" for final in finals).most_common(1)
    return PARSERS.get(kind, "regex:PATTERN")
