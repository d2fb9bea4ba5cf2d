"""The server's prompt has another number of tokens than the trained one.

## What it does

Where a server tells only how many tokens its prompts have, compares that number with the training record. A known
mistake that makes prompts of just these lengths is named where the server's answers confirm it. An error where the
server counts the trained prompts themselves rightly (as text or ids, without messages), else a warning.

## Why it is bad

Another number of tokens is another prompt: a second BOS, a default system prompt, a template of the server's own.

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

There is no automatic fix: start the server with the template that is saved with the model.

## References

- vllm-project/vllm#6699, ggml-org/llama.cpp#7062
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.serving.server_builds_another_prompt import REMEDY, severity_of
from truetune.generation.server_observations import PromptComparison


class ServerPromptHasAnotherLength(ServingRule):
    code = "SRV002"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        return None if self._counted() else Unmet("no prompt was compared by its length alone")

    def figure(self) -> str:
        asked = self._counted()
        return (
            f"{sum(bool(prompt.same) for prompt in asked):,} of {len(asked):,} prompts have the"
            " trained length"
        )

    def _counted(self) -> list[PromptComparison]:
        return [
            prompt
            for prompt in self.subject.prompts
            if prompt.same is not None and prompt.by == "count"
        ]

    def findings(self) -> Iterator[Finding]:
        asked = [prompt for prompt in self.subject.prompts if prompt.same is not None]
        others = [prompt for prompt in asked if not prompt.same and prompt.by == "count"]
        if not others:
            return
        causes = tuple(dict.fromkeys(prompt.cause for prompt in others if prompt.cause))
        sure = all(prompt.sure for prompt in others)
        yield self.finding(
            f"{len(others)} of {len(asked)} prompts have another number of tokens on the server"
            " than in training" + (f": {causes[0]}" if causes else ""),
            REMEDY,
            severity=severity_of(others, asked) if sure else "warning",
            evidence=["the server counts the trained prompts themselves rightly"] if sure else [],
            cases=[
                Case(_text(prompt))
                for prompt in sorted(others, key=lambda prompt: not prompt.difference)
            ],
            count=len(others),
            total=len(asked),
        )


def _text(prompt: PromptComparison) -> str:
    how = f": {prompt.difference}" if prompt.difference else ""
    return f"{prompt.name}: {prompt.served} tokens on the server, {prompt.trained} in training{how}"
