"""Two models give the same answers, word for word: one model answered for both.

## What it does
Compares the answers to the same questions in two files of predictions, in two columns of a file, or for two values of
its column `model`, if their names say that they come from different models (base and tuned). It fires if 98 % or more
of at least 20 answers are equal word for word, and they are sentences, not labels: 5 words on average, half of them
different from each other.

## Why it is bad
Two models write the same sentence now and then, but not a hundred times. The adapter was not loaded, the request named
the base model, or one file was written twice: the comparison shows nothing about the training.

## Example

```yaml
rows: 0
twins:
  - {names: [preds_base.jsonl, preds_sft.jsonl], equal: 90, rows: 90, words: 14.0, distinct: 81}
```

## Use instead

```yaml
rows: 0
twins:
  - {names: [preds_base.jsonl, preds_sft.jsonl], equal: 31, rows: 90, words: 14.0, distinct: 81}
```

## Fix safety
There is no automatic fix. Check the script or command that generated the answers: `lora_request` in vLLM's `LLM`, the
`model` of a request, `peft=` in lm_eval. `truetune serve-check` compares a server with the model.

## References

- vllm-project/vllm#6250 (an adapter that is loaded and not applied)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.generation.evaluation_loss_and_score_types import EqualAnswers

MIN_ROWS = 20
"""Answers to compare at least. Chosen by hand: two models may agree on a handful of easy questions"""
# Chosen: a model that was trained with a rate of nothing differs from its base in a word now and then.
MIN_EQUAL_SHARE = 0.98
# Labels and numbers are equal wherever both models are right.
MIN_WORDS = 5.0
MIN_DISTINCT_SHARE = 0.5


class TwoModelsAnswerAlike(EvaluationRule):
    code = "EVAL017"
    fault = Fault.WRONG_MODEL_EVALUATED
    symptoms = ("odd-metrics", "nothing-is-learned", "good-here-bad-there")
    severity = "error"
    of_files = True

    def unmet(self) -> Unmet | None:
        """Unmet without answers of two models to the same questions, and where these are too few or labels."""
        if not self.subject.twins:
            return Unmet("no answers of two models to the same questions were read", asked=True)
        if not any(map(_are_answers_enough_and_varied, self.subject.twins)):
            return Unmet(
                "the answers of two models are too few, or labels, which may rightly be equal",
                f"give {MIN_ROWS} answers or more that are sentences",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers of two models are equal."""
        return "; ".join(
            f"{one.equal} of {one.rows} answers of {one.names[0]} and {one.names[1]} are equal"
            for one in self.subject.twins
            if _are_answers_enough_and_varied(one)
        )

    def findings(self) -> Iterator[Finding]:
        for twins in self.subject.twins:
            if (
                not _are_answers_enough_and_varied(twins)
                or twins.equal < MIN_EQUAL_SHARE * twins.rows
            ):
                continue
            one, other = twins.names
            yield self.finding(
                f"{one} and {other} should be from different models by their names, but {twins.equal} of"
                f" {twins.rows} answers are the same, word for word: one model answered for both",
                "check which model generated each file: lora_request in each call of vLLM's generate, the adapter's"
                " name as `model` of a request, peft= in lm_eval, no disable_adapter(); then generate the tuned"
                " model's answers again",
                evidence=[
                    f"an answer has {twins.words:.0f} words on average, and {twins.distinct} answers differ from"
                    " each other"
                ],
                cases=[
                    Case("the same answer", file=file, line=line) for file, line in twins.places
                ],
            )


def _are_answers_enough_and_varied(twins: EqualAnswers) -> bool:
    """Are there enough answers, long and different enough that two models would not write the same?"""
    return (
        twins.rows >= MIN_ROWS
        and twins.words >= MIN_WORDS
        and twins.distinct >= MIN_DISTINCT_SHARE * twins.rows
    )
