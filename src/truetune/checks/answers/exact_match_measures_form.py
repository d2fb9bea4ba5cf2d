"""Answers give their reference in another format, so exact match measures the format.

## What it does
Compares the answers of a finished model with their references, if no parser is named. It fires if at most 10 % are
their reference word for word, and at least 20 % give the same final answer in another format: the number at the end of
a sentence, the letter after `Answer:`, the words of the reference in a longer text, JSON with text around it. With or
without a parser, it also fires if nearly all references mark their final answer in one way (`####`) and nearly all
answers in another (`\\boxed{}`).

Numbers on both sides that differ only in spelling (`1234` and `1,234.00`) count even if more answers are exact: it
fires if they are half of the misses, and 8 or more.

If nearly all answers begin with a reasoning block (`<think>...</think>`) that the references lack, it reports that, and
how many equal their reference without it.

Differing markers and number spellings are a warning, and so are reasoning blocks if 20 % of the answers equal their
reference without them. Anything else is an info.

## Why it is bad
Exact match is near 0 whatever the model knows: it counts how often the format matches. Comparing two models by it tells
which one writes bare answers. A script that looks for the marker of the references reads nothing from any answer.

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
There is no automatic fix. Use a parser that reads both answers and references (`--parser`). If you want the references'
format, train on answers in that format. The score changes, and can't be compared with earlier ones.

## References

- EleutherAI/lm-evaluation-harness#2707, EleutherAI/lm-evaluation-harness#3404
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from truetune.checks.answers.count_bad_answers_per_pass import MIN_ANSWERS, cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.generation.answer_samples import NO_LIMIT, Sample
from truetune.generation.answer_verdicts import Verdict, answer_faults
from truetune.generation.final_answers import (
    MARK_NAMES,
    MAX_ANSWER_WORDS,
    answer_marks,
    find_final_answer,
    holds_final_answer,
    parsed_answer_as_number_or_letter,
    value_of_bare_text,
)
from truetune.generation.find_answers_cut_at_one_length import (
    find_answers_ended_by_limit,
    samples_not_left_out,
)
from truetune.generation.split_words import split_words
from truetune.render.unfilled_example_plan import THINK_END

# Share of the answers that may be their reference word for word: with more of them exact match measures something.
MAX_EXACT_SHARE = 0.1
# Share of the answers that give their reference in another form. One of ten wrong numbers equals the right digit by
# chance, so that 1 of 5 is beyond it; at half, chance would do, at double, weak models would not be judged.
MIN_OTHER_FORM_SHARE = 0.2
# Shares of the texts that have a mark, and of the answers that may have that of the references too. Chosen: a model
# leaves the mark out now and then, most of all where it was cut.
MIN_MARKED_SHARE = 0.8
MAX_BOTH_MARKS_SHARE = 0.1
# Chosen: below half of the misses, what the model says is the more likely fault.
MIN_SPELLED_SHARE = 0.5
FAULTS_BESIDE_FORM: frozenset[Verdict] = frozenset(
    ("empty", "garbage", "echo", "role markers", "loop", "language")
)
"""Verdicts on answers whose form is not what is wrong with them"""
PARSERS = {"number": "number", "letter": "choice", "json": "json"}
"""Kind of final answer -> the parser that reads it"""


class ExactMatchMeasuresForm(AnswersRule):
    code = "ANS015"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    severity = "info"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._differing_final_answer_marks() is not None:
            return None
        if any(sample.scores.parsed is not None for sample in self.subject.looks[-1].samples):
            return Unmet("a parser is named, which reads the answers in any form")
        with_reference = len(self._answers_with_reference())
        if with_reference < MIN_ANSWERS:
            return Unmet(
                f"{with_reference} answers have a reference: too few to judge",
                "name references, of 8 answers or more",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers are their reference, and how many give it in another form."""
        with_reference = self._answers_with_reference()
        exact = sum(map(_is_exact, with_reference))
        in_other_form = _answers_in_other_form(with_reference)
        return (
            f"{exact} of {len(with_reference)} answers equal their reference, {len(in_other_form)} give it in"
            " another format"
        )

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None or not self.subject.finished:
            return
        marks = self._differing_final_answer_marks()
        if marks is not None:
            yield self._finding_on_differing_answer_marks(*marks)
            return
        with_reference = self._answers_with_reference()
        total = len(with_reference)
        exact = sum(map(_is_exact, with_reference))
        if exact > MAX_EXACT_SHARE * total:
            # Most answers are exact: only numbers of another spelling are certain to be right as well.
            yield from self._finding_on_number_spelling(with_reference, total - exact)
        else:
            yield from self._findings_on_inexact_answers(with_reference, exact)

    def _findings_on_inexact_answers(
        self, with_reference: list[Sample], exact: int
    ) -> Iterator[Finding]:
        """What keeps answers that give their reference from being it word for word."""
        total = len(with_reference)
        in_other_form = _answers_in_other_form(with_reference)
        is_enough = len(in_other_form) >= MIN_OTHER_FORM_SHARE * total
        reasoned = [sample for sample in with_reference if _adds_reasoning_block(sample)]
        if len(reasoned) >= MIN_MARKED_SHARE * total:
            equal = sum(map(_is_exact_after_reasoning, reasoned))
            # Reasoning alone explains it where the rest is the reference, or nothing else explains it.
            if equal >= MIN_OTHER_FORM_SHARE * total or not is_enough:
                yield self._finding_on_reasoning(reasoned, equal, total)
                return
        if is_enough:
            yield self._finding_on_other_words(in_other_form, exact, total)

    def _finding_on_other_words(self, samples: list[Sample], exact: int, total: int) -> Finding:
        """That answers give their reference in other words; `exact` are it word for word."""
        parser = _parser_that_reads_references(samples)
        return self.finding(
            f"exact match measures the format of these answers: {exact} of {total} equal their reference word for"
            f" word, but {len(samples)} more give it in another format",
            f"score with --parser {parser}, which reads both, or train on answers in the references' format",
            cases=cases_of_samples(samples),
            count=len(samples),
            total=total,
        )

    def _finding_on_number_spelling(
        self, with_reference: list[Sample], missed: int
    ) -> Iterator[Finding]:
        """That many of the missed answers are the number of their reference, and are written otherwise."""
        samples = [sample for sample in with_reference if _is_number_in_other_spelling(sample)]
        if len(samples) < max(MIN_ANSWERS, MIN_SPELLED_SHARE * missed):
            return
        one = samples[0]
        shown = f"{one.answer.text.strip()[:40]!r} for {one.prompt.reference.strip()[:40]!r}"
        yield self.finding(
            f"{len(samples)} of the {missed} answers that differ from their reference are the same number ({shown}):"
            " comparing texts counts them as wrong",
            "compare numbers: float(text.replace(',', '')) on both sides, or score with --parser number",
            severity="warning",
            cases=cases_of_samples(samples),
            count=len(samples),
            total=missed,
        )

    def _finding_on_reasoning(self, reasoned: list[Sample], equal: int, of: int) -> Finding:
        """That answers begin with reasoning, which a comparison of whole texts counts as wrong."""
        return self.finding(
            f"{len(reasoned)} of {of} answers contain a reasoning block that their references lack (up to"
            f" {THINK_END}): with it none equals its reference, without it {equal} do",
            f"compare only the text after {THINK_END}, or generate without reasoning"
            " (enable_thinking=False in the chat template of Qwen3)",
            severity="warning" if equal >= MIN_OTHER_FORM_SHARE * of else "info",
            cases=cases_of_samples(reasoned),
            count=len(reasoned),
            total=of,
        )

    def _differing_final_answer_marks(self) -> tuple[str, str] | None:
        """(mark of the references, the other mark of the answers), if nearly all have theirs; else
        None.
        """
        with_reference = self._answers_with_reference()
        if len(with_reference) < MIN_ANSWERS or not self.subject.finished:
            return None
        reference_mark = _common_final_answer_mark(
            [sample.prompt.reference for sample in with_reference]
        )
        answer_mark = _common_final_answer_mark([sample.answer.text for sample in with_reference])
        if reference_mark is None or answer_mark is None or reference_mark == answer_mark:
            return None
        both = sum(reference_mark in answer_marks(sample.answer.text) for sample in with_reference)
        if both > MAX_BOTH_MARKS_SHARE * len(with_reference):
            return None
        return reference_mark, answer_mark

    def _finding_on_differing_answer_marks(self, reference_mark: str, answer_mark: str) -> Finding:
        """That a script which looks for the mark of the references finds none in the answers."""
        with_reference = self._answers_with_reference()
        with_mark = [
            sample for sample in with_reference if answer_mark in answer_marks(sample.answer.text)
        ]
        return self.finding(
            f"{len(with_mark)} of {len(with_reference)} answers give their result as {answer_mark}, but the"
            f" references as {reference_mark}: a script that looks for {reference_mark} reads nothing from the"
            " answers, and its accuracy is 0",
            f"read {answer_mark} too ({answer_mark} first, then {reference_mark}, then the last number; --parser"
            " number reads both), or train on answers that end like the references",
            severity="warning",
            cases=cases_of_samples(with_mark),
            count=len(with_mark),
            total=len(with_reference),
        )

    def _answers_with_reference(self) -> list[Sample]:
        """Answers of the last pass that have a reference."""
        return [
            sample for sample in self.subject.looks[-1].samples if sample.prompt.reference.strip()
        ]


def _common_final_answer_mark(texts: Sequence[str]) -> str | None:
    """The mark of a final answer that nearly all texts have, the surest first; None where there is none."""
    counts = Counter(mark for text in texts for mark in answer_marks(text))
    return next(
        (mark for mark in MARK_NAMES if counts[mark] >= MIN_MARKED_SHARE * len(texts)), None
    )


def _adds_reasoning_block(sample: Sample) -> bool:
    """Does the answer end a reasoning block, and its reference none?"""
    return THINK_END in sample.answer.text and THINK_END not in sample.prompt.reference


def _is_exact_after_reasoning(sample: Sample) -> bool:
    """Is what the answer says behind its reasoning its reference, white space aside?"""
    text = sample.answer.text.rpartition(THINK_END)[2]
    return text.split() == sample.prompt.reference.split()


def _is_exact(sample: Sample) -> bool:
    """Is the answer its reference, white space aside?"""
    return sample.answer.text.split() == sample.prompt.reference.split()


def _is_number_in_other_spelling(sample: Sample) -> bool:
    """Are answer and reference one number and nothing else, in two spellings: `1234` and `1,234.00`?"""
    if _is_exact(sample):
        return False
    answer, reference = (
        value_of_bare_text(text) for text in (sample.answer.text, sample.prompt.reference)
    )
    return answer is not None and answer == reference and answer[0] == "number"


def _answers_in_other_form(samples: Sequence[Sample]) -> list[Sample]:
    """Sound answers that give their reference, and are not it. One that loops may hold it too: its fault is another."""
    # The last number of a text that was cut is one of its steps, though it may be the reference by chance.
    whole = samples_not_left_out(samples, find_answers_ended_by_limit(samples, NO_LIMIT))
    return [
        sample
        for sample in whole
        if not _is_exact(sample)
        and FAULTS_BESIDE_FORM.isdisjoint(answer_faults(sample, NO_LIMIT))
        and _gives_reference(sample.answer.text, sample.prompt.reference)
    ]


def _gives_reference(answer: str, reference: str) -> bool:
    """Does the answer hold the whole reference? A number is not enough where the reference says of what: `room 5`."""
    final, reference_words = find_final_answer(reference), split_words(reference)
    is_number = final is not None and final.kind == "number"
    is_labelled = is_number and parsed_answer_as_number_or_letter(reference) is None
    if is_labelled and len(reference_words) <= MAX_ANSWER_WORDS:
        # With spaces around both, so that `room 5` is not read in `room 51`.
        return f" {' '.join(reference_words)} " in f" {' '.join(split_words(answer))} "
    return holds_final_answer(answer, reference)


def _parser_that_reads_references(samples: Sequence[Sample]) -> str:
    """The parser that reads most of the references."""
    finals = (find_final_answer(sample.prompt.reference) for sample in samples)
    ((kind, _),) = Counter(final.kind if final else "word" for final in finals).most_common(1)
    return PARSERS.get(kind, "regex:PATTERN")
