"""The server accepts fields of a request but ignores them.

## What it does
Lists the fields (`logprobs`, `n`, `chat_template_kwargs`, ...) that a server accepts without effect. It is always an
info.

## Why it is bad
A client that sends them assumes that they work: a thinking mode that is switched off, a number of samples, a stop
string.

## Example

```yaml
ignored: [n]
```

## Use instead

```yaml
ignored: []
```

## Fix safety
There is no automatic fix: do not use these fields, or use another server.

## References

- https://huggingface.co/docs/transformers/serving, docs/backends.md
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ServingRule


class ServerIgnoresFields(ServingRule):
    code = "SRV013"
    fault = Fault.REQUEST_FIELDS_IGNORED
    symptoms = ("good-here-bad-there",)
    severity = "info"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """That no field of a request was found to be taken without effect."""
        return "0 fields of a request were accepted without effect"

    def findings(self) -> Iterator[Finding]:
        """The finding on fields of a request that the server takes without effect."""
        if self.subject.ignored:
            yield self.finding(
                "the server accepts these fields of a request but ignores them: "
                f"{', '.join(self.subject.ignored)}",
                "do not rely on them with this server",
            )
