"""Few different prompts were used, but each of their rows has another reference.

## What it does
Counts the different prompts (with all their turns) and references of the last sampling pass. It fires if a prompt
occurs in 8 rows or more on average, most of the references differ, and an answer is no closer to its own reference than
to that of another row with the same prompt. It ignores prompts with pictures, sound or video, and several answers to
one question, which share their reference.

## Why it is bad
Nothing in such a prompt tells which reference is wanted, so no model can give it. The model has learned the format of
the answers and makes up their content: its loss falls, but names and numbers are wrong. The text that differs from row
to row was lost before the prompt was built: a column that is not mapped, an unfilled placeholder, a prompt that was
cut.

## Example

```yaml
finished: true
looks:
  - {step: 0, prompts: 24, questions: Extract the order number., answers: Order 7, references: differ}
```

## Use instead

```yaml
finished: true
looks:
  - step: 0
    prompts: 24
    questions:
      - "Extract the order number: parcel 7 is late."
      - "Extract the order number: where is 8?"
      - "Extract the order number: 9 came open."
      - "Extract the order number: cancel 10."
    answers: Order 7
    references: differ
```

## Fix safety
There is no automatic fix. If one request is intended and any answer to it is right (a poem, a joke), ignore the
finding.

## References

- hiyouga/LLaMA-Factory, data/README.md: `query` of `columns` in dataset_info.json
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.checks.shorten_text import quote_shortened
from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import split_words

# Chosen: sets with several references a question have 2 to 5.
ROWS_A_PROMPT = 8
"""Rows that a prompt stands in on average, at least"""
MIN_ROWS = 16
"""Answers to judge at least: two prompts of ROWS_A_PROMPT rows each; with fewer, one repeated
prompt decides"""
MIN_PROMPT_WORDS = 3
"""Words of a prompt: of fewer it may be the name of a task or of a source"""
DISTINCT_REFERENCES = 0.5
"""Share of the rows that have a reference of their own, at least"""
# Two standard errors: 95 % of what chance gives.
STANDARD_ERRORS = 2.0
MEDIA_MARK = re.compile(
    r"<\|?(?:image|img|video|audio|vision|speech)[\w-]*\|?>|\[IMG\]|\"(?:image|video|audio|image_url|input_audio)\"",
    re.IGNORECASE,
)
"""Where a picture, a video or sound stands in a prompt"""


class PromptsDoNotTellTheAnswers(AnswersRule):
    code = "ANS040"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("nothing-is-learned", "garbage-output", "odd-metrics")
    severity = "warning"
    # Answers that are no text know nothing of any reference.
    moot_where = (
        "answers-are-empty",
        "answers-are-gibberish",
        "answers-loop",
        "answers-are-cut-off",
    )

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        samples = self._samples_with_prompt_and_reference()
        if len(samples) < MIN_ROWS:
            return Unmet(
                f"{len(samples)} answers have a prompt and a reference: too few to compare",
                asked=False,
            )
        if any(MEDIA_MARK.search(_whole_prompt(sample)) for sample in samples):
            return Unmet("prompts with pictures, sound or video may all be one text")
        return None

    def measurement_if_clean(self) -> str:
        """The numbers of different prompts and of different references, and of the rows."""
        samples = self._samples_with_prompt_and_reference()
        references = _count_different_references(samples)
        return (
            f"{len(set(map(_whole_prompt, samples)))} different prompts and {references} different"
            f" references in {len(samples)} rows"
        )

    def findings(self) -> Iterator[Finding]:
        samples = self._samples_with_prompt_and_reference()
        if self.unmet() is not None or not self.subject.finished:
            return
        prompts = len(set(map(_whole_prompt, samples)))
        references = _count_different_references(samples)
        if prompts * ROWS_A_PROMPT > len(samples) or references < DISTINCT_REFERENCES * len(
            samples
        ):
            return
        if _are_answers_nearest_own_reference(samples):
            return
        have = "have the same prompt" if prompts == 1 else f"have only {prompts} different prompts"
        yield self.finding(
            f"{len(samples)} rows {have}, but {references} different references: nothing in a prompt tells which"
            " reference is wanted, so the model can only make it up",
            "write what each answer is based on (the message, the document, the question) into the prompt, in training"
            " and at inference: find the column of the rows that contains it, and map it"
            ' ("query" under "columns" in LLaMA-Factory\'s dataset_info.json, {input} in your own prompt); then train'
            " again",
            cases=_cases_with_references(samples[:3]),
            count=len(samples),
            total=len(samples),
        )

    def _samples_with_prompt_and_reference(self) -> list[Sample]:
        """Answers of the last pass that have a prompt and a reference."""
        return [
            one
            for one in self.subject.looks[-1].samples
            if one.prompt.reference.strip() and len(_whole_prompt(one).split()) >= MIN_PROMPT_WORDS
        ]


def _whole_prompt(sample: Sample) -> str:
    """All that stands before the answer."""
    prompt = sample.prompt
    if prompt.chat is None:
        return prompt.text or prompt.question
    return json.dumps([dict(one) for one in prompt.chat.messages], default=str, ensure_ascii=False)


def _cases_with_references(samples: Sequence[Sample]) -> list[Case]:
    """A case for each sample: its question, and the reference that the prompt does not tell."""
    return [
        replace(
            case,
            text=f"{quote_shortened(sample.prompt.question)}: the reference is"
            f" {quote_shortened(sample.prompt.reference)}",
        )
        for case, sample in zip(cases_of_samples(samples), samples, strict=True)
    ]


def _count_different_references(samples: list[Sample]) -> int:
    """How many different references there are."""
    return len({sample.prompt.reference.strip() for sample in samples})


def _are_answers_nearest_own_reference(samples: list[Sample]) -> bool:
    """Are answers nearer to their own reference than to that of another row with the same prompt, beyond chance?"""
    by_prompt: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_prompt[_whole_prompt(sample)].append(sample)
    nearer = [
        _share_of_reference_words(one.answer.text, one.prompt.reference)
        - _share_of_reference_words(one.answer.text, other.prompt.reference)
        for rows in by_prompt.values()
        for one, other in pairwise([*rows, rows[0]])
        if one.prompt.reference != other.prompt.reference
    ]
    if len(nearer) < MIN_ROWS:
        return True  # one reference a prompt: the prompt tells it
    mean = sum(nearer) / len(nearer)
    variance = sum((value - mean) ** 2 for value in nearer) / (len(nearer) - 1)
    return mean > STANDARD_ERRORS * math.sqrt(variance / len(nearer))


def _share_of_reference_words(answer: str, reference: str) -> float:
    """The share of the reference's words that the answer has."""
    wanted = set(split_words(reference))
    return len(wanted & set(split_words(answer))) / len(wanted) if wanted else 0.0
