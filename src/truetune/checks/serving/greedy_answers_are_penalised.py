"""The server applies a repetition penalty to greedy answers by default.

## What it does
Sends the same prompt at temperature 0 as it is, and with the penalties removed (`repetition_penalty` 1,
`frequency_penalty` and `presence_penalty` 0). The answers must be equal.

## Why it is bad
A repetition penalty in generation_config.json or in the server's settings also applies at temperature 0. It suppresses
what a fine-tune has learned to repeat: keys of JSON, names, numbers, code. Greedy evaluations then measure the penalty.

## Example

```yaml
sampling:
  settings: [repetition_penalty 1.3]
  penalised: true
  plain: ["{name: Ann, id: 7}", "{name: Ann, name: Bob}"]
```

## Use instead

```yaml
sampling:
  settings: []
  penalised: false
```

## Fix safety
There is no automatic fix: remove the penalty from generation_config.json, or send `repetition_penalty: 1.0`.

## References

- vllm-project/vllm#12622, EleutherAI/lm-evaluation-harness#3154
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.shorten_text import quote_shortened


class GreedyAnswersArePenalised(ServingRule):
    code = "SRV006"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    since = "0.1.0"
    part = "sampling"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where the server takes no penalties in a request; None where it can."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.sampling is None or self.subject.sampling.penalised is None:
            return Unmet("the server accepts no penalties in a request")
        return None

    def measurement_if_clean(self) -> str:
        """That the greedy answer is the same with the penalties taken away."""
        return "1 greedy answer is the same without the penalties"

    def findings(self) -> Iterator[Finding]:
        """The finding on a server whose greedy answer changes once the penalties are taken away."""
        sampling = self.subject.sampling
        if sampling is None or not sampling.penalised:
            return
        # The penalty may be the server's own, and then no file names it.
        penalties = [text for text in sampling.settings if "penalty" in text]
        yield self.finding(
            "at temperature 0 the server still applies a penalty: without it the answers differ"
            + (f" (generation_config.json has {', '.join(penalties)})" if penalties else ""),
            "remove the penalty from generation_config.json or from the server's settings, or send"
            " repetition_penalty 1.0 with each request",
            evidence=[
                f"{name}: {quote_shortened(text)}"
                for name, text in zip(
                    ("as it is", "without penalties"), sampling.plain, strict=False
                )
            ],
        )
