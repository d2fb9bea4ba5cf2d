"""Answers repeat the question.

## What it does
Counts the answers that begin with the question, word for word, or consist of little else, if the reference does not. It
fires if there are significantly more than in the best earlier sampling pass, or, in the second half of a run, if
significantly more than 5 % repeat it. It is an error if all answers (8 or more) do at the end of a run, otherwise a
warning.

For a file of predictions, it detects whether the prompt was decoded together with the answer: nearly all predictions
contain their question as it was asked, after only what a template writes, and before an answer. If only some begin with
their whole prompt, the model writes it. The other rules then judge the answers without the prompts.

## Why it is bad
The model repeats the question, because the question is in the answer column or has labels. If the prompt was decoded
together with the answer, the model is fine but every score is wrong: exact match is 0.

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
There is no automatic fix. Check that no training answer begins with its question (`truetune check DATA`), and mask the
prompt in the labels: `completion_only_loss` or `assistant_only_loss` in TRL, `train_on_inputs: false` in Axolotl.
`truetune run -- COMMAND` shows the labels.

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
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.generation.answer_samples import Sample
from truetune.generation.prompt_left_in_predictions import MIN_SHARE

# Chosen, not measured: to repeat a short question is a manner of answering. At half, one of 40 would count; at
# double, a tenth of the answers would be echoes before it fires.
TOLERATED = 0.05


class AnswersEchoThePrompt(BadAnswerShareRule):
    code = "ANS008"
    fault = Fault.ANSWERS_CONTAIN_THEIR_PROMPT
    severity = "error"
    since = "0.1.0"
    tolerated = TOLERATED
    called = "repeat the question"
    untold = Unmet(
        "no prompt is known that an answer could repeat", "write the prompt beside each answer"
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
                "check that no training answer begins with its question (truetune check DATA), and that the"
                " prompt's tokens have no labels (truetune run -- COMMAND shows them): set"
                " completion_only_loss=True for prompt/completion rows or assistant_only_loss=True for messages"
                " (TRL), or train_on_inputs: false (Axolotl)",
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
            yield (
                "if your code does cut the prompt off, the model itself repeats it: check the token ids"
            )

    def _finding_on_uncut_prompts(self, samples: Sequence[Sample]) -> Finding:
        """The finding on predictions that all begin with their prompt, which was not cut off; what
        follows it is scored.
        """
        scored = [sample for sample in samples if sample.scores.exact is not None]
        evidence = ["scores by exact match, F1 or overlap that include the prompt are meaningless"]
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
            f"{len(holding)} of {total} predictions contain the prompt in front of the answer: the code decodes the"
            " prompt too, which makes every score wrong",
            "decode only the tokens after the prompt, `out[:, inputs['input_ids'].shape[1]:]` (in a pipeline:"
            " return_full_text=False), and score again; if the code does that already, the model has learned the"
            " prompt as part of the answer: train on the answers only (truetune run -- COMMAND shows the labels)",
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
            "check whether the training rows contain the prompt twice: chosen, rejected or completion must not"
            " begin with the text of the prompt column (truetune check ROWS, or truetune check . if a script makes"
            " them); correct them and train again",
            severity="error" if 2 * len(holding) >= total else "warning",
            evidence=[
                f"the other {total - len(holding)} do not: code that also decodes the prompt would leave it in all",
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
            f"{len(holding)} of {total} answers begin with the text of the prompt, though {cutting.file.name} cuts"
            " the prompt off: the model writes it, because the prompt was trained on as part of the answer",
            "keep the prompt out of the loss and out of the answer's text (in TRL: completion_only_loss=True with"
            " prompt and completion columns, or assistant_only_loss=True with messages), and train again; truetune"
            " run -- COMMAND shows the labels",
            evidence=["the other rules judge the answers without their prompts"],
            cases=[
                *cases_of_samples(holding)[:2],
                Case(cutting.text, file=str(cutting.file), line=cutting.line),
            ],
            count=len(holding),
            total=total,
        )
