"""The server's prompt has another number of tokens than in training.

## What it does
If a server reports only how many tokens its prompts have, compares that number with the training record. It names a
known mistake that produces prompts of exactly these lengths, if the server's answers confirm it. It is an error if the
server counts the training prompts themselves correctly (as text or ids, without messages), otherwise a warning.

## Why it is bad
Another number of tokens means another prompt: a second BOS, a default system prompt, or the server's own template.

## Example

```yaml
prompts:
  - {name: 1 turn, same: false, by: count, trained: 12, served: 31}
  - {name: 2 turns, same: false, by: count, trained: 40, served: 59}
```

## Use instead

```yaml
prompts:
  - {name: 1 turn, same: true, by: count, trained: 12, served: 12}
  - {name: 2 turns, same: true, by: count, trained: 40, served: 40}
```

## Fix safety
There is no automatic fix: start the server with the template saved with the model (`truetune serve-check MODEL --print
vllm` prints the command).

## References

- vllm-project/vllm#6699, ggml-org/llama.cpp#7062
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.severity_of_prompt_differences import (
    PROMPT_REMEDY,
    severity_of_other_prompts,
)
from truetune.generation.server_observations import PromptComparison


class ServerPromptHasAnotherLength(ServingRule):
    code = "SRV002"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where no prompt was compared by its length alone; None where it can."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        return (
            None
            if self._prompts_compared_by_length()
            else Unmet("no prompt was compared by its length only")
        )

    def measurement_if_clean(self) -> str:
        """How many of the prompts that were compared by length have the trained length."""
        counted = self._prompts_compared_by_length()
        return (
            f"{sum(bool(prompt.same) for prompt in counted):,} of {len(counted):,} prompts have the same length as"
            " in training"
        )

    def _prompts_compared_by_length(self) -> list[PromptComparison]:
        """Prompts of which only the length could be compared."""
        return [
            prompt
            for prompt in self.subject.prompts
            if prompt.same is not None and prompt.by == "count"
        ]

    def findings(self) -> Iterator[Finding]:
        """The finding on prompts with another number of tokens than the trained ones."""
        compared = [prompt for prompt in self.subject.prompts if prompt.same is not None]
        others = [prompt for prompt in self._prompts_compared_by_length() if not prompt.same]
        if not others:
            return
        # One mistake makes all of them, so the first that is known stands for all.
        cause = next((prompt.cause for prompt in others if prompt.cause), "")
        # Some servers count otherwise than they read (without BOS, for one). Only where the count of the trained prompt
        # itself is right does another count prove another prompt.
        is_proved = all(prompt.sure for prompt in others)
        proof = (
            [("the server counts the tokens of the training prompts themselves correctly")]
            if is_proved
            else []
        )
        severity = severity_of_other_prompts(others, compared) if is_proved else "warning"
        yield self.finding(
            f"{len(others)} of {len(compared)} prompts have another number of tokens on the server"
            " than in training" + (f": {cause}" if cause else ""),
            PROMPT_REMEDY,
            severity=severity,
            evidence=proof,
            cases=_cases_with_known_differences_first(others),
            count=len(others),
            total=len(compared),
        )


def _cases_with_known_differences_first(others: list[PromptComparison]) -> list[Case]:
    """A case for each prompt; those with a known difference stand first, for a terminal shows three."""
    by_difference = sorted(others, key=lambda prompt: not prompt.difference)
    return [Case(_describe_lengths(prompt)) for prompt in by_difference]


def _describe_lengths(prompt: PromptComparison) -> str:
    """Both lengths of a prompt, and the difference where it is known."""
    how = f": {prompt.difference}" if prompt.difference else ""
    return f"{prompt.name}: {prompt.served} tokens on the server, {prompt.trained} in training{how}"
