"""Answers repeat the question.

## What it does

Counts the answers that begin with the question, word for word, or are little else than the question, once or again and
again, where the reference is not. It fires where there are more than at the best look before, unless chance makes
such a
change, or, in the second half of a run, where surely more than 1 of 20 does; an error where at the end of a run all
of 8 or more do.

In a file of predictions it tells whether the prompt was decoded with the answer: nearly all hold their question as it
was asked, behind nothing but what a template writes, and before an answer. The other rules then judge the answers
behind the prompts.

## Why it is bad

The model repeats what it is asked. The question is in the answer's column or is supervised. Where the prompt was
decoded with the answer, the model is right and every score is wrong: exact match is 0.

## Example

```yaml
looks:
  - {step: 0, echoed: 0}
  - {step: 100, echoed: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, echoed: 1}
  - {step: 100, echoed: 0}
```

## Fix safety

There is no automatic fix: keep the question out of the answer's text and its tokens out of the loss (`truetune run --
COMMAND` shows the labels).

## References

- tatsu-lab/stanford_alpaca#320, tloen/alpaca-lora#367
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.answers.bad_answers import all_of, cases, find_bad_answers
from truetune.checks.counted_answers import CountedAnswersRule
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample

TOLERATED = 0.05


class AnswersEchoThePrompt(CountedAnswersRule):
    code = "ANS008"
    severity = "error"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "repeat the question"
    untold = Unmet(
        "no question is known that an answer could repeat", "write the prompt beside each answer"
    )

    def bad(self, sample: Sample) -> bool | None:
        """None where there is no question, and where the reference begins with it too."""
        question, reference = (
            " ".join(text.split()) for text in (sample.prompt.question, sample.prompt.reference)
        )
        if sample.answer.has_prompt:
            return True
        return None if not question or reference.startswith(question) else sample.scores.echoed

    def findings(self) -> Iterator[Finding]:
        found = find_bad_answers(self.subject, self.bad, TOLERATED)
        if found is not None and any(sample.answer.has_prompt for sample in found.samples):
            yield self._decoded_with_the_prompt(found.samples)
        elif found is not None:
            yield self.finding(
                f"{found.last} answers repeat the question{found.before}",
                "keep the question out of the answer's text, and its tokens out of the loss",
                severity="error" if self.subject.finished and all_of(found) else "warning",
                evidence=found.evidence,
                cases=cases(found.samples),
                count=found.last.bad,
                total=found.last.of,
                figure=found.figure("answers that echo the prompt"),
            )

    def _doubts(self, holding: Sequence[Sample]) -> tuple[str, ...]:
        """What else it may be: a question without any mark of a template may be the model's own."""
        asked_alone = all(sample.prompt.chat is None for sample in holding)
        return (
            ("if the prompt was cut off, the model itself repeats it: look at the ids",)
            if asked_alone
            else ()
        )

    def _decoded_with_the_prompt(self, samples: Sequence[Sample]) -> Finding:
        """The finding on predictions whose prompt was not cut off; what stands behind it is scored."""
        scored = [sample for sample in samples if sample.scores.exact is not None]
        right = sum(bool(sample.scores.exact) for sample in scored)
        holding = [sample for sample in samples if sample.answer.has_prompt]
        total = len(self.subject.looks[-1].samples)
        return self.finding(
            f"{len(holding)} of {total} predictions hold the prompt in front of the answer: it was not cut off before"
            " they were decoded",
            "decode what is behind the prompt alone, `out[:, inputs['input_ids'].shape[1]:]` (a pipeline:"
            " return_full_text=False), and score again",
            evidence=[
                "what was scored by exact match, F1 or overlap with the prompt in it says nothing of the model",
                *(
                    [
                        f"behind the prompt, {right} of {len(scored)} answers are their reference word for word"
                    ]
                    if scored
                    else []
                ),
                "the other rules judge the answers behind the prompts",
                *self._doubts(holding),
            ],
            cases=cases(holding),
            count=len(holding),
            total=total,
        )
