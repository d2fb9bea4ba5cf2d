"""The server rejects a chat that the model was trained on.

## What it does
Counts the chats that the server answers with an error: a warning if rows of the data are among them, otherwise an info.

## Why it is bad
A server rejects roles, tools or turns that its template does not support, or for which an option is missing (vLLM:
`--enable-auto-tool-choice`). What the model learned can then not be used.

## Example

```yaml
prompts:
  - {name: 1 turn, same: true, by: ids, trained: 12, served: 12}
  - {name: row 3, of_data: true, trained: 40, refused: "/v1/chat/completions: 400 Conversation roles must alternate"}
```

## Use instead

```yaml
prompts:
  - {name: 1 turn, same: true, by: ids, trained: 12, served: 12}
  - {name: row 3, of_data: true, same: true, by: ids, trained: 40, served: 40}
```

## Fix safety
There is no automatic fix: the server's error message tells what is missing.

## References

- https://docs.vllm.ai/en/latest/features/tool_calling/
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ServingRule


class ServerRefusesATrainedPrompt(ServingRule):
    code = "SRV003"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    symptoms = ("good-here-bad-there",)
    severity = "warning"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """How many chats were sent, of which none is refused."""
        return f"0 of {len(self.subject.prompts):,} chats are rejected"

    def findings(self) -> Iterator[Finding]:
        """The finding on chats that the server answers with an error."""
        prompts = self.subject.prompts
        refused = [prompt for prompt in prompts if prompt.refused]
        if not refused:
            return
        yield self.finding(
            f"the server rejects {len(refused)} of {len(prompts)} chats that the model's template accepts",
            "start the server with the model's own template (vLLM: --chat-template FILE), and with the option that"
            " its error message names (e.g. --enable-auto-tool-choice for tools)",
            severity="warning" if any(prompt.of_data for prompt in refused) else "info",
            cases=[Case(f"{prompt.name}: {prompt.refused}") for prompt in refused],
            count=len(refused),
            total=len(prompts),
        )
