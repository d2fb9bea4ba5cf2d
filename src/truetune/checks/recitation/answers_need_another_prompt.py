"""The prompt in serving is not the one from training.

## What it does
Compares the ids of the prompt that the tokenizer's template makes at inference with those of the training row, and
generates answers from both. It is an error if answers are reproduced from the training prompt but not from the serving
prompt (or only half as likely), or if the ids differ right before the answer. If they only differ elsewhere and the
miniature still answers, it is a warning.

## Why it is bad
In serving, the model gets another format than in training: it is good in the notebook and bad when served. The loss
does not show it.

## Example

```python
given = datasets.Dataset.from_list(rows)
texts = ["User: {} Assistant: {}<|im_end|>".format(*(m["content"] for m in row["messages"])) for row in rows]
run = sft([{"text": text} for text in texts])
```

## Use instead

```python
given = datasets.Dataset.from_list(rows)
run = sft(rows)
```

## Fix safety
There is no automatic fix: train with the template that is saved with the tokenizer, or save the one from training
(`tokenizer.chat_template = ...; tokenizer.save_pretrained(...)`).

## References

- unslothai/unsloth#449, vllm-project/vllm#6699, ollama/ollama#6823
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recitation.recitation_record import (
    PromptDifference,
    RecitedAnswer,
    case_of_recited_answer,
    explain_why_no_answers_are_judged,
    rows_with_separable_answer_if_learned,
)
from truetune.checks.rule import RecitationRule

REMEDY = (
    "train on rows rendered by the chat template that is saved with the tokenizer, since servers use that"
    " (tokenizer.apply_chat_template, or give the trainer messages)"
)


class AnswersNeedAnotherPrompt(RecitationRule):
    code = "REC007"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    symptoms = ("nothing-is-learned", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        rows = rows_with_separable_answer_if_learned(self.subject)
        differences = [(row, row["prompt"]) for row in rows if row["prompt"]]
        if not differences:
            return
        evidence = [_describe_difference(differences[0][1])]
        lost = [row for row, _ in differences if _is_recited_from_trained_prompt_only(row)]
        if lost:
            yield self.finding(
                f"{len(lost)} of {len(rows)} answers are given to the training prompt but hardly to"
                " the serving prompt",
                REMEDY,
                evidence=evidence,
                cases=[case_of_recited_answer(row) for row in lost],
                count=len(lost),
                total=len(rows),
            )
            return
        # The tokens right before the answer are the generation prompt: no miniature is needed to know that they count.
        has_other_ends = not all(difference["same_end"] for _, difference in differences)
        yield self.finding(
            f"{len(differences)} of {len(rows)} prompts have other ids in serving than in"
            " training" + (", also right before the answer" if has_other_ends else ""),
            REMEDY,
            severity="error" if has_other_ends else "warning",
            evidence=evidence,
            cases=[Case(_describe_difference(difference)) for _, difference in differences[1:]],
            count=len(differences),
            total=len(rows),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer of a learned row was recited."""
        return super().unmet() or explain_why_no_answers_are_judged(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """That no learned prompt is served with other ids than it is trained with."""
        return make_count_measurement(
            "prompts that have other ids in serving than in training",
            0,
            len(rows_with_separable_answer_if_learned(self.subject)),
        )


def _is_recited_from_trained_prompt_only(row: RecitedAnswer) -> bool:
    """Is the answer recited from the trained prompt, and from the served one not, or half as
    likely?
    """
    if row["trained"] is None or not row["trained"]["recited"]:
        return False
    # Half is chosen, not measured: the miniature has memorised the row, so its own prompt gives a probability near 1.
    trained, served = row["probability"]
    return not row["recited"] or served < trained - math.log(2)


def _describe_difference(prompt: PromptDifference) -> str:
    """Where the two prompts part, in one line."""
    trained, served = prompt["lengths"]
    return (
        f"they differ from token {prompt['first']} on: training {prompt['trained']!r}, serving"
        f" {prompt['served']!r} ({trained} and {served} tokens)"
    )
