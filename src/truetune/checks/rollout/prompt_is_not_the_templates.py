"""Completions are sampled after another prompt than the chat template's.

## What it does

Compares the prompt ids of each completion with what the run's chat template makes of the row's messages, with the
generation prompt, the trainer's tools and its template settings. Prompts that are plain text, hold images or are
written by an environment are left out.

## Why it is bad

The policy is trained to answer a text that nobody will send it: without the generation prompt it writes the
assistant's header itself, with a second BOS or another system message it sees what serving never shows.

## Example

```python
class WithoutGenerationPrompt(trl.GRPOTrainer):
    def _tokenize_prompts(self, prompts):
        ids = self.processing_class.apply_chat_template(prompts, return_dict=True)["input_ids"]
        return ids, None, {}

run = grpo(WithoutGenerationPrompt)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix. A prompt may differ on purpose, as one that ends with the beginning of the answer.

## References

- huggingface/trl#3853, huggingface/trl#4361
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.auditing.rollout_run import Completion, RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import RolloutRule

NO_CHAT = Unmet("the prompts are no chats of texts, or there is no chat template")
SHOWN_TOKENS = 8
"""Tokens from the first difference on that a case shows"""


class PromptIsNotTheTemplates(RolloutRule):
    code = "ROL002"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.compared = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.compared else NO_CHAT)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        for completion in self.subject.completions():
            expected = completion.step.template_prompt_ids
            if expected is None:
                continue
            self.compared += 1
            prompt = _prompt_without_padding(completion)
            if prompt != expected[completion.row]:
                cases.append(
                    Case(self._describe_difference(completion, prompt, expected[completion.row]))
                )
        if not cases:
            return
        yield self.finding(
            f"the prompts of {len(cases):,} of {self.compared:,} completions are not what the chat template makes of"
            " them",
            "let the tokenizer's apply_chat_template(..., add_generation_prompt=True, tokenize=True) make the prompts"
            " that are sampled from",
            cases=cases,
            count=len(cases),
            total=self.compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many prompts differ."""
        return make_count_measurement(
            "completions whose prompt is not the template's", 0, self.compared
        )

    def _describe_difference(
        self, completion: Completion, prompt: tuple[int, ...], expected: tuple[int, ...]
    ) -> str:
        """Where two prompts part, and what stands there."""
        pairs = zip(prompt, expected, strict=False)
        place = next(
            (n for n, (one, other) in enumerate(pairs) if one != other),
            min(len(prompt), len(expected)),
        )
        end = place + SHOWN_TOKENS
        return (
            f"{completion.place}, prompt token {place}: {self.subject.text(prompt[place:end])!r} instead of"
            f" {self.subject.text(expected[place:end])!r}"
        )


def _prompt_without_padding(completion: Completion) -> tuple[int, ...]:
    """The ids of a completion's prompt."""
    step, row = completion.step, completion.row
    return tuple(step.prompt_ids[row][step.prompt_mask[row]].tolist())
