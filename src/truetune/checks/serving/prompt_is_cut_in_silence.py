"""The server cuts a long prompt and says nothing.

## What it does

Sends one prompt that is longer than the server's context where that is told, or as long as the longest example of the
training. A server must read all of it or refuse it: the number of tokens that it says it read must not be smaller than
those that were sent, and, where it tells log-probabilities, another beginning must give another answer.

## Why it is bad

The system prompt and the oldest turns are gone, and answers are given to the rest. Nothing in the answer shows it.

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
(llama.cpp: `--no-context-shift`; SGLang: no `--allow-auto-truncate`).

## References

- ollama/ollama#6823, ollama/ollama#8363
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule


class PromptIsCutInSilence(ServingRule):
    code = "SRV012"
    severity = "error"
    since = "0.1.0"
    part = "context"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        found = self.subject.context
        if found is None or found.sent is None:
            return Unmet(
                "no long prompt was sent",
                "leave --longest out, or name more tokens than the context",
            )
        told = bool(found.refused) or found.counted is not None or found.beginning is not None
        return None if told else Unmet("the server does not tell what it read of a long prompt")

    def figure(self) -> str:
        found = self.subject.context
        assert found is not None
        if found.refused:
            return f"a prompt of {found.sent:,} tokens is refused"
        read = (
            "another beginning gives another answer"
            if found.counted is None
            else f"{found.counted:,} were read"
        )
        return f"of a prompt of {found.sent:,} tokens, {read}"

    def findings(self) -> Iterator[Finding]:
        found = self.subject.context
        if found is None or found.sent is None or found.refused:
            return
        fewer = found.counted is not None and found.counted < found.sent
        if not fewer and found.beginning is not False:
            return
        read = (
            f"{found.counted:,} tokens were read"
            if fewer and found.counted is not None
            else "another beginning gives the same answer, to the last digit"
        )
        yield self.finding(
            f"a prompt of {found.sent:,} tokens is cut in silence: {read}",
            "start the server with a longer context, and so that it refuses what is longer",
            evidence=(
                [f"the server says that it takes {found.told:,} tokens"]
                if found.told is not None
                else []
            ),
        )
