"""The server accepts shorter prompts than the model was trained on.

## What it does
Compares the context length that the server reports (vLLM: `max_model_len`; llama.cpp: `n_ctx`; SGLang:
`probe_server_context_limit`), or at which it rejected a long prompt, with the `max_length` of the training.

## Why it is bad
Requests of a length that was trained are rejected or cut. The default of a start command is often small: Ollama's and
llama.cpp's have been 2048 and 4096.

## Example

```yaml
context: {told: 2048, positions: 32768, trained: 8192}
```

## Use instead

```yaml
context: {told: 8192, positions: 32768, trained: 8192}
```

## Fix safety
There is no automatic fix: start the server with a longer context (`--max-model-len`, `--ctx-size`, `--context-length`,
`num_ctx`). It needs more memory.

## References

- ollama/ollama#8363, ollama/ollama#6823
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule


class ContextIsShorterThanTraining(ServingRule):
    code = "SRV011"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    severity = "warning"
    since = "0.1.0"
    part = "context"

    def unmet(self) -> Unmet | None:
        """Why the two lengths can't be compared: one of them is not known; None where they can."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.context is None or self.subject.context.trained is None:
            return Unmet(
                "max_length of the training is not known",
                "check the folder of a run of truetune train",
            )
        if self._context_of_server() is None:
            return Unmet("the server does not report its context, and rejected no prompt")
        return None

    def measurement_if_clean(self) -> str:
        """The tokens that the server takes, and those of the longest examples of the training."""
        assert self.subject.context is not None
        trained = self.subject.context.trained
        return (
            f"the server accepts {self._context_of_server():,} tokens; the training had examples of up to"
            f" {trained:,}"
        )

    def _context_of_server(self) -> int | None:
        """The context that the server tells, or at which it refused a prompt."""
        context = self.subject.context
        if context is None:
            return None
        if context.told is not None:
            return context.told
        # A refused prompt is longer than the limit, so this is an upper bound of it.
        return context.sent if context.refused else None

    def findings(self) -> Iterator[Finding]:
        """The finding on a server that takes fewer tokens than the model was trained on."""
        context = self.subject.context
        if context is None or context.trained is None:
            return
        limit = self._context_of_server()
        if limit is None or limit >= context.trained:
            return
        yield self.finding(
            f"the server accepts at most {limit:,} tokens, but the training had examples of up to"
            f" {context.trained:,}",
            f"start the server with a context of {context.trained:,} tokens or more: --max-model-len (vLLM),"
            " --ctx-size (llama.cpp), --context-length (SGLang), num_ctx (Ollama)",
            evidence=(
                [f"it rejected a prompt of {context.sent:,} tokens: {context.refused}"]
                if context.sent and context.refused
                else []
            ),
        )
