"""num_ctx is not set, so Ollama truncates longer prompts at its default context.

## What it does
Looks for a Modelfile without `PARAMETER num_ctx`.

## Why it is bad
Ollama's default context is 4,096 tokens (2,048 before release 0.6), whatever the model supports. It silently drops the
beginning of longer prompts: the system prompt and the question first. The limit also cuts off answers.

## Example
```text
FROM ./model.gguf
```

## Use instead
```text
FROM ./model.gguf
PARAMETER num_ctx 8192
```

## Fix safety
A longer context takes more memory. OLLAMA_CONTEXT_LENGTH sets it for a server, and `options.num_ctx` for a request.

## References
- Ollama documentation, "Modelfile Reference", `num_ctx`; Ollama FAQ, "How can I specify the context window size?"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ModelfileRule


class ModelfileContextLeftToDefault(ModelfileRule):
    code = "MFL005"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    severity = "info"

    def measurement_if_clean(self) -> str:
        """The context that `num_ctx` sets, if it is set."""
        context = self.subject.parameters.get("num_ctx")
        return f"num_ctx {context.value}" if context is not None else "no num_ctx"

    def findings(self) -> Iterator[Finding]:
        # A note: OLLAMA_CONTEXT_LENGTH of the server, or a request, may set it as well, and no file shows that.
        base = self.subject.last("from")
        if base is not None and "num_ctx" not in self.subject.parameters:
            yield self.finding(
                "num_ctx is not set: Ollama's default is 4,096 tokens (2,048 before 0.6), and it drops the"
                " beginning of longer prompts",
                "add PARAMETER num_ctx N, where N is the maximum length in training, such as 8192",
                cases=[self.case_of_instruction(base)],
            )
