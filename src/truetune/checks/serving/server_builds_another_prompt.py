"""The server builds another prompt from the same messages than the training did.

## What it does
`truetune serve-check` requests from a running server the prompts that it builds for fixed conversations (1 to 4 turns,
with and without a system message and tools) and for rows of the data, and compares them with the training record. It
compares their ids if the server returns them (vLLM, SGLang, llama.cpp), otherwise the answers. It names the mistake if
a known one produces exactly these ids. It is an error; or a warning if only prompts with tools differ and no row of the
data has tools.

## Why it is bad
Servers have their own templates, default system prompts and BOS tokens, from an option, a GGUF file or an older copy of
the tokenizer. The model then gets a format that it was not trained on, and no file of the training shows it.

## Example

```yaml
prompts:
  - {name: 1 turn, same: false, by: ids, trained: 12, served: 13, cause: BOS (<s>) stands twice,
     difference: "at the beginning: the server puts in '<s>' (ids [1])"}
```

## Use instead

```yaml
prompts:
  - {name: 1 turn, same: true, by: ids, trained: 12, served: 12}
```

## Fix safety
There is no automatic fix: start the server with the template saved with the model (`truetune serve-check MODEL --print
vllm` prints the command).

## References

- vllm-project/vllm#6699, ollama/ollama#2334, unslothai/unsloth#449, hiyouga/LLaMA-Factory#6320
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


class ServerBuildsAnotherPrompt(ServingRule):
    code = "SRV001"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where no prompt could be compared by its content; None where it can."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._prompts_compared_by_content():
            return None
        # What was compared by its length is judged by server-prompt-has-another-length; then nothing was left unasked.
        by_length = any(prompt.same is not None for prompt in self.subject.prompts)
        why = "the server returns neither the ids of a prompt nor answers to both forms"
        return Unmet(
            why, ("start it so that it returns the token ids of prompts"), asked=not by_length
        )

    def measurement_if_clean(self) -> str:
        """How many of the compared prompts are the trained ones."""
        compared = self._prompts_compared_by_content()
        return (
            f"{sum(bool(prompt.same) for prompt in compared):,} of {len(compared):,} prompts are those of the"
            " training"
        )

    def _prompts_compared_by_content(self) -> list[PromptComparison]:
        """Prompts that were compared by their ids or by answers to them."""
        return [
            prompt
            for prompt in self.subject.prompts
            if prompt.same is not None and prompt.by != "count"
        ]

    def findings(self) -> Iterator[Finding]:
        """The finding on prompts that the server builds otherwise than the training did."""
        compared = self._prompts_compared_by_content()
        others = [prompt for prompt in compared if not prompt.same]
        if not others:
            return
        causes = tuple(dict.fromkeys(prompt.cause for prompt in others if prompt.cause))
        yield self.finding(
            f"{len(others)} of {len(compared)} prompts differ between the server and the training"
            + (f": {causes[0]}" if len(causes) == 1 else ""),
            PROMPT_REMEDY,
            severity=severity_of_other_prompts(others, compared),
            evidence=[f"cause: {cause}" for cause in causes] if len(causes) > 1 else [],
            cases=[
                Case(_describe_prompt_difference(prompt))
                for prompt in _put_one_of_each_difference_first(others)
            ],
            count=len(others),
            total=len(compared),
        )


def _put_one_of_each_difference_first(others: list[PromptComparison]) -> list[PromptComparison]:
    """The prompts, in which one of each kind of difference stands before more of the same: a
    terminal shows the first three alone.
    """
    # Reversed, so that the first of equal ones stays.
    first_by_difference = {prompt.difference: prompt for prompt in reversed(others)}
    firsts = sorted(first_by_difference.values(), key=others.index)
    return [*firsts, *(prompt for prompt in others if prompt not in firsts)]


def _describe_prompt_difference(prompt: PromptComparison) -> str:
    """Where a prompt differs from the trained one, and both lengths."""
    how = prompt.difference or "the answer differs from that to the training prompt"
    served = "" if prompt.served is None else f", {prompt.served} on the server"
    return f"{prompt.name}: {how} ({prompt.trained} tokens in training{served})"
