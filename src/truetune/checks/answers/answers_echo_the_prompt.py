"""Answers repeat the question.

## What it does

Counts the answers that begin with the question, word for word, or are little else than the question, once or again and
again, where the reference is not. It fires where there are more than at the best pass before, unless chance makes such
a change, or, in the second half of a run, where, beyond chance, more than 1 of 20 does; an error where at the end of a
run all of 8 or more do.

In a file of predictions it tells whether the prompt was decoded with the answer: nearly all hold their question as it
was asked, after nothing but what a template writes, and before an answer. Where only a part of them begins with its
whole prompt, the model writes it. The other rules then judge the answers after the prompts.

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
from pathlib import Path

from truetune.checks.answers.count_bad_answers_per_pass import (
    are_enough_and_all_bad,
    bad_answers_if_risen_or_too_many,
    cases_of_samples,
)
from truetune.checks.answers.find_script_line_cutting_prompt_off import PromptCut, prompt_cut_beside
from truetune.checks.base_of_rules_on_bad_answer_shares import BadAnswerShareRule
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.prompt_left_in_predictions import MIN_SHARE

# Chosen, not measured: to repeat a short question is a manner of answering. At half, one of 40 would count; at
# double, a tenth of the answers would be echoes before it fires.
TOLERATED = 0.05


class AnswersEchoThePrompt(BadAnswerShareRule):
    code = "ANS008"
    severity = "error"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "repeat the question"
    untold = Unmet(
        "no question is known that an answer could repeat", "write the prompt beside each answer"
    )

    def is_bad_answer(self, sample: Sample) -> bool | None:
        """Does the answer repeat its question?

        None if there is no question, or if the reference begins with it too.
        """
        if sample.answer.has_prompt:
            return True
        question = " ".join(sample.prompt.question.split())
        reference = " ".join(sample.prompt.reference.split())
        return None if not question or reference.startswith(question) else sample.scores.echoed

    def findings(self) -> Iterator[Finding]:
        bad_answers = bad_answers_if_risen_or_too_many(self.subject, self.is_bad_answer, TOLERATED)
        if bad_answers is not None and any(
            sample.answer.has_prompt for sample in bad_answers.samples
        ):
            yield self._finding_on_uncut_prompts(bad_answers.samples)
        elif bad_answers is not None:
            yield self.finding(
                f"{bad_answers.count_in_last_pass} answers repeat the"
                f" question{bad_answers.best_earlier_count_in_words}",
                "keep the question out of the answer's text, and its tokens out of the loss",
                severity="error"
                if self.subject.finished and are_enough_and_all_bad(bad_answers)
                else "warning",
                evidence=bad_answers.evidence,
                cases=cases_of_samples(bad_answers.samples),
                count=bad_answers.count_in_last_pass.bad,
                total=bad_answers.count_in_last_pass.of,
                figure=bad_answers.figure("answers that echo the prompt"),
            )

    def _note_that_model_may_repeat_question(self, holding: Sequence[Sample]) -> Iterator[str]:
        """That the model itself may repeat the question, where no prompt is a chat."""
        if all(sample.prompt.chat is None for sample in holding):
            yield "if the prompt was cut off, the model itself repeats it: look at the ids"

    def _finding_on_uncut_prompts(self, samples: Sequence[Sample]) -> Finding:
        """The finding on predictions that all begin with their prompt, which was not cut off; what
        follows it is scored.
        """
        scored = [sample for sample in samples if sample.scores.exact is not None]
        evidence = [
            "what was scored by exact match, F1 or overlap with the prompt in it says nothing of the model"
        ]
        if scored:
            right = sum(bool(sample.scores.exact) for sample in scored)
            evidence.append(
                f"after the prompt is cut off, {right} of {len(scored)} answers equal their reference"
            )
        holding = [sample for sample in samples if sample.answer.has_prompt]
        total = len(self.subject.looks[-1].samples)
        if len(holding) < MIN_SHARE * total:
            return self._finding_on_some_echoes(holding, total, evidence)
        cutting = prompt_cut_beside(Path(holding[0].prompt.file))
        if cutting is not None:
            return self._finding_on_learned_prompts(holding, total, cutting)
        return self.finding(
            f"{len(holding)} of {total} predictions hold the prompt in front of the answer: it was not cut off before"
            " they were decoded",
            "decode the tokens after the prompt only, `out[:, inputs['input_ids'].shape[1]:]` (a pipeline:"
            " return_full_text=False), and score again; where the code cuts it already, the text of the template was"
            " learned as part of the answer: train on the answers alone (truetune run -- COMMAND shows the labels)",
            evidence=[
                *evidence,
                "the other rules judge the answers without their prompts",
                *self._note_that_model_may_repeat_question(holding),
            ],
            cases=cases_of_samples(holding),
            count=len(holding),
            total=total,
        )

    def _finding_on_some_echoes(
        self, holding: Sequence[Sample], total: int, evidence: Sequence[str]
    ) -> Finding:
        """The finding where some answers hold the prompt: code that does not cut it off would leave it in all."""
        return self.finding(
            f"{len(holding)} of {total} answers begin with their whole prompt, word for word: the model writes it",
            "check whether the training rows hold the prompt twice: chosen, rejected or completion must"
            " not begin with"
            " the text of the prompt column (truetune check ROWS; truetune check . follows the script that makes them);"
            " then train again",
            severity="error" if 2 * len(holding) >= total else "warning",
            evidence=[
                f"the other {total - len(holding)} do not: code that decodes the prompt too would leave it in all",
                *evidence[1:],
                "the other rules judge the answers without their prompts",
            ],
            cases=cases_of_samples(holding),
            count=len(holding),
            total=total,
        )

    def _finding_on_learned_prompts(
        self, holding: Sequence[Sample], total: int, cutting: PromptCut
    ) -> Finding:
        """The finding where the code beside cuts the prompt: the model itself writes it."""
        return self.finding(
            f"{len(holding)} of {total} answers begin with the text of the prompt, though {cutting.file.name} cuts the"
            " prompt off: the model writes it, because the text of the template was learned as part of the answer",
            "keep the prompt out of the loss and out of the answer's text (TRL: prompt and completion columns, or"
            " completion_only_loss / assistant_only_loss), and train again; truetune run -- COMMAND shows the labels",
            evidence=["the other rules judge the answers without their prompts"],
            cases=[
                *cases_of_samples(holding)[:2],
                Case(cutting.text, file=str(cutting.file), line=cutting.line),
            ],
            count=len(holding),
            total=total,
        )
