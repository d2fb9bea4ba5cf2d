"""Parameters of the Modelfile make right answers impossible.

## What it does
Judges `temperature`, `top_p`, `repeat_penalty`, `frequency_penalty` and `presence_penalty` by the table of ranges that
`generation-settings-distort-answers` uses for code.

## Why it is bad
A tuned model that has learned a format needs to repeat itself: keys of JSON, names, brackets. A high penalty on
repetition takes that away, a high temperature makes noise of it.

## Example
```text
FROM ./model.gguf
PARAMETER num_ctx 8192
PARAMETER repeat_penalty 1.5
```

## Use instead
```text
FROM ./model.gguf
PARAMETER num_ctx 8192
PARAMETER repeat_penalty 1.0
```

## Fix safety
Where answers loop without a penalty, the cause is in training.

## References
- Ollama documentation, "Modelfile Reference"; Keskar et al., CTRL (arXiv:1909.05858), section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ModelfileRule
from truetune.checks.value_limits import GENERATION, breaches, number

NAMES = {
    "repetition_penalty": "repeat_penalty",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Setting of the table -> Ollama's parameter"""


class ModelfileParametersDistortAnswers(ModelfileRule):
    code = "TT675"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        return None if self._values() else Unmet("it is about parameters of sampling: none is set")

    def figure(self) -> str:
        return ", ".join(f"{NAMES[name]} {value}" for name, value in self._values().items())

    def _values(self) -> dict[str, str]:
        """What the table judges, as the file spells it."""
        given = self.subject.parameters
        return {
            name: given[theirs].value
            for name, theirs in NAMES.items()
            if theirs in given and number(given[theirs].value) is not None
        }

    def findings(self) -> Iterator[Finding]:
        values = self._values()
        for breach in breaches(values, GENERATION):
            name = NAMES[breach.limit.setting]
            yield self.finding(
                breach.text(breach.limit.says, values, name),
                breach.text(breach.limit.fix, values, name),
                severity=breach.limit.severity,
                evidence=[breach.limit.source],
                cases=[self.case(self.subject.parameters[name])],
            )
