"""Different questions get the same answer.

## What it does
Takes the commonest answer of each sampling pass, ignoring white space. It fires in the second half of a run if
significantly more prompts get it than share the commonest reference. Earlier in a run, there must also be significantly
more than got one answer in the first pass. In the second half, 4 prompts are enough if all get it and no two references
are the same. It is an error if all of 8 or more get it then, otherwise a warning.

## Why it is bad
The model has learned what most answers say, and does not read the question. The prompt does not reach it (masked,
truncated, the wrong column), one answer dominates the data, or the learning rate was too high.

## Example

```yaml
looks:
  - {step: 0}
  - {step: 100, answers: I am sorry, references: differ}
```

## Use instead

```yaml
looks:
  - {step: 0}
  - {step: 100, answers: differ, references: differ}
```

## Fix safety
There is no automatic fix: look at the commonest answers in the data (`truetune check DATA`), and at what the model sees
of the prompt (`truetune run -- COMMAND` shows it).

## References

- haotian-liu/LLaVA#1546, BAAI-DCAI/Bunny#97
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from truetune.checks.answers.count_bad_answers_per_pass import (
    MAX_CHANCE,
    MIN_ANSWERS,
    BadAnswerCount,
    cases_of_samples,
    does_reference_fit_limit,
    is_late_in_run,
    p_value_of_rise,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.position_of_answered_option import position_of_answered_option
from truetune.checks.rule import AnswersRule
from truetune.checks.shorten_text import quote_shortened
from truetune.generation.answer_samples import Sample, SampledRun, SamplingPass
from truetune.generation.identical_answers import (
    MIN_QUESTIONS,
    are_answers_wrongly_identical,
    normalise_spaces,
)

MIN_MAJORITY = 0.8
"""Share of the references from which one is a majority class: always saying it beats most classifiers by accuracy"""
MAX_CLASSES = 20
"""Different references up to which they are classes. Chosen: published sets of topics have 2 to 20"""


class OneAnswerToAll(AnswersRule):
    code = "ANS005"
    fault = Fault.ONE_ANSWER_FOR_ALL_QUESTIONS
    severity = "error"
    since = "0.1.0"
    # One prompt gets one answer, where nothing is drawn.
    moot_where = ("prompts-do-not-tell-the-answers",)

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        last_pass = self.subject.looks[-1]
        samples = _without_cut_answers(self.subject, last_pass).samples
        if not samples:
            return Unmet(
                ("each answer was cut off before the length of its reference"),
                "raise --max-new-tokens",
            )
        if len(samples) >= MIN_QUESTIONS:
            return None
        _, count = _commonest_text(last_pass, [sample.answer.text for sample in samples])
        return Unmet(
            f"{count.bad} of {len(samples)} prompts get the same answer: too few to judge",
            "ask more prompts (-n)",
        )

    def measurement_if_clean(self) -> str:
        """How many prompts get the commonest answer, and how many have the commonest reference."""
        last_pass = _without_cut_answers(self.subject, self.subject.looks[-1])
        _, answers = _commonest_answer(last_pass)
        _, references = _commonest_reference(last_pass)
        return (
            f"the commonest answer goes to {answers} prompts, the commonest reference to"
            f" {references}"
        )

    def findings(self) -> Iterator[Finding]:
        passes = [_without_cut_answers(self.subject, look) for look in self.subject.looks]
        if not passes:
            return
        last_pass = passes[-1]
        # Without samples, and where most answers are empty, there is no text that all could share.
        answer, now = _commonest_answer(last_pass)
        if not answer:
            return
        is_late = is_late_in_run(self.subject)
        # Early in a run it has to have become worse than the untrained model was.
        if not is_late and p_value_of_rise(_commonest_answer(passes[0])[1], now) >= MAX_CHANCE:
            return
        # Four prompts are too few for Fisher's test, yet one answer to all of them says enough.
        are_all_alike = is_late and are_answers_wrongly_identical(last_pass.samples)
        expected = _commonest_reference(last_pass)[1]
        if p_value_of_rise(expected, now) >= MAX_CHANCE and not are_all_alike:
            return
        yield self._finding_on_one_answer(
            passes,
            answer,
            now,
            is_error=are_all_alike or (is_late and _do_all_prompts_get_one_answer(now)),
        )

    def _finding_on_one_answer(
        self, passes: Sequence[SamplingPass], answer: str, now: BadAnswerCount, *, is_error: bool
    ) -> Finding:
        """The finding that one answer goes to so many prompts of the last pass."""
        last_pass = passes[-1]
        return self.finding(
            f"{now} prompts get the same answer: {quote_shortened(answer)}",
            _remedy_for_one_answer(last_pass, answer),
            severity="error" if is_error else "warning",
            evidence=["; ".join(_evidence_from_references_and_earlier_pass(passes))],
            cases=cases_of_samples(_samples_with_answer(last_pass, answer)),
            count=now.bad,
            total=now.of,
        )


def _do_all_prompts_get_one_answer(count: BadAnswerCount) -> bool:
    """Does one answer go to all prompts, and are these enough?"""
    return count.bad == count.of >= MIN_ANSWERS


def _evidence_from_references_and_earlier_pass(passes: Sequence[SamplingPass]) -> Iterator[str]:
    """What the references, and an earlier pass where there was one, have in common."""
    yield f"the commonest reference would fit {_commonest_reference(passes[-1])[1]}"
    if len(passes) > 1:
        first = _commonest_answer(passes[0])[1]
        yield f"at step {first.step:,} the commonest answer went to {first}"


def _remedy_for_one_answer(look: SamplingPass, answer: str) -> str:
    """What to look at: of multiple choice, the place of the right option in the training rows."""
    place = position_of_answered_option([sample.prompt.question for sample in look.samples], answer)
    if place:
        return (
            f"check which option is right in the training rows: if it is always {place}, shuffle the options of each"
            " row and train again; evaluate on rows with shuffled options too"
        )
    if _is_majority_class(look, answer):
        return (
            f"{quote_shortened(answer)} is nearly always right in the data, so it is the easiest thing to learn:"
            " train on equally many rows of each class, or weight the rare ones in the loss, and evaluate by recall"
            " per class or macro F1"
        )
    if _is_answer_taken_from_prompts(look, answer):
        return (
            f"none of the references is {quote_shortened(answer)}: search for it in the prompts (does a line that"
            " gave the answer away in training now say this?), and check what the model sees of a prompt (truetune"
            " run -- COMMAND)"
        )
    return (
        "count the commonest answers in the data (truetune check DATA), and check that the prompt reaches the model"
        " uncut (truetune run -- COMMAND shows it)"
    )


def _is_answer_taken_from_prompts(look: SamplingPass, answer: str) -> bool:
    """Is the one answer no reference of any prompt, though it stands in most of the prompts?"""
    questions = [sample.prompt.question for sample in look.samples]
    references = {normalise_spaces(sample.prompt.reference) for sample in look.samples}
    holding = sum(answer in normalise_spaces(question) for question in questions)
    return answer not in references and 2 * holding > len(questions)


def _is_majority_class(look: SamplingPass, answer: str) -> bool:
    """Is the one answer the right one of most prompts, beside a few other short ones? Then it is a class."""
    expected, count = _commonest_reference(look)
    references = {normalise_spaces(sample.prompt.reference) for sample in look.samples}
    return (
        expected == answer
        and MIN_MAJORITY * count.of <= count.bad < count.of
        and len(references) <= MAX_CLASSES
    )


def _without_cut_answers(watched: SampledRun, look: SamplingPass) -> SamplingPass:
    """Without the answers that a limit shorter than their references has cut: all may begin alike."""
    whole = tuple(
        sample
        for sample in look.samples
        if sample.scores.stopped or does_reference_fit_limit(watched, sample)
    )
    return replace(look, samples=whole)


def _samples_with_answer(look: SamplingPass, answer: str) -> list[Sample]:
    """The samples that got this answer, white space aside."""
    return [sample for sample in look.samples if normalise_spaces(sample.answer.text) == answer]


def _commonest_answer(look: SamplingPass) -> tuple[str, BadAnswerCount]:
    """The answer that most prompts get, and how many."""
    return _commonest_text(look, [sample.answer.text for sample in look.samples])


def _commonest_reference(look: SamplingPass) -> tuple[str, BadAnswerCount]:
    """The reference that most prompts have, and how many."""
    return _commonest_text(look, [sample.prompt.reference for sample in look.samples])


def _commonest_text(look: SamplingPass, texts: Sequence[str]) -> tuple[str, BadAnswerCount]:
    """The text that occurs most, and how often; empty texts count as all different."""
    ((text, count),) = Counter(map(normalise_spaces, texts)).most_common(1) or [("", 0)]
    return text, BadAnswerCount(look.step, count if text else min(1, count), len(look.samples))
