"""The server silently cuts a long prompt.

## What it does
Sends one prompt that is longer than the server's context (if known), or as long as the longest training example. A
server must read all of it or reject it. The number of tokens that it reports must not be smaller than the number sent.
If it returns log-probabilities, another beginning of the prompt must change them.

## Why it is bad
The system prompt and the oldest turns are gone, and the model answers the rest. Nothing in the answer shows it.

## Example

```yaml
context: {trained: 4096, sent: 4096, counted: 2048}
```

## Use instead

```yaml
context: {trained: 4096, sent: 4096, counted: 4111}
```

## Fix safety
There is no automatic fix: start the server with a longer context, and without the option that shifts or truncates it
(llama.cpp: `--no-context-shift`; SGLang: no `--allow-auto-truncate`). Prompts that are too long are then rejected with
an error.

## References

- ollama/ollama#6823, ollama/ollama#8363
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule


class PromptIsCutInSilence(ServingRule):
    code = "SRV012"
    fault = Fault.PROMPTS_CUT_BEFORE_ANSWERING
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    since = "0.1.0"
    part = "context"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing: no long prompt was sent, or what was read of it is not told;
        None where it can.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        context = self.subject.context
        if context is None or context.sent is None:
            return Unmet(
                "no long prompt was sent",
                "omit --longest, or give more tokens than the context",
            )
        if context.refused or context.counted is not None or context.beginning is not None:
            return None
        return Unmet("the server does not report how much it read of a long prompt")

    def measurement_if_clean(self) -> str:
        """How long the long prompt was, and what shows that it was refused or read."""
        context = self.subject.context
        assert context is not None
        if context.refused:
            return f"a prompt of {context.sent:,} tokens is rejected"
        proof = "another beginning gives another answer"
        if context.counted is not None:
            proof = f"{context.counted:,} were read"
        return f"of a prompt of {context.sent:,} tokens, {proof}"

    def findings(self) -> Iterator[Finding]:
        """The finding on a server that reads a part of a long prompt and says nothing."""
        context = self.subject.context
        if context is None or context.sent is None or context.refused:
            return
        counts_fewer = context.counted is not None and context.counted < context.sent
        # None: the server tells no log-probabilities, and nothing was compared.
        ignores_beginning = context.beginning is False
        if not counts_fewer and not ignores_beginning:
            return
        proof = "another beginning gives the same answer, to the last digit"
        if counts_fewer:
            proof = f"it read only {context.counted:,} of them"
        yield self.finding(
            f"the server silently cuts a prompt of {context.sent:,} tokens: {proof}",
            "start the server with a longer context (--max-model-len, --ctx-size, --context-length, num_ctx), and"
            " without truncation (llama.cpp: --no-context-shift; SGLang: no --allow-auto-truncate)",
            evidence=(
                [f"the server reports a context of {context.told:,} tokens"]
                if context.told is not None
                else []
            ),
        )
