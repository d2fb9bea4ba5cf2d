"""Parameters of the Modelfile make right answers impossible, or slow.

## What it does
Judges `temperature`, `top_p`, `repeat_penalty`, `frequency_penalty` and `presence_penalty` by the table of ranges that
`generation-settings-distort-answers` uses for code. `num_gpu 0` keeps all layers on the CPU.

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
LAYERS = "num_gpu"
"""Layers that are put on the GPU, whatever its name says"""


class ModelfileParametersDistortAnswers(ModelfileRule):
    code = "TT675"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        if self._values() or LAYERS in self.subject.parameters:
            return None
        return Unmet("it is about parameters of sampling and num_gpu: none is set")

    def figure(self) -> str:
        given = {NAMES[name]: value for name, value in self._values().items()}
        if LAYERS in self.subject.parameters:
            given[LAYERS] = self.subject.parameters[LAYERS].value
        return ", ".join(f"{name} {value}" for name, value in given.items())

    def _values(self) -> dict[str, str]:
        """What the table judges, as the file spells it."""
        given = self.subject.parameters
        return {
            name: given[theirs].value
            for name, theirs in NAMES.items()
            if theirs in given and number(given[theirs].value) is not None
        }

    def findings(self) -> Iterator[Finding]:
        layers = self.subject.parameters.get(LAYERS)
        if layers is not None and number(layers.value) == 0:
            yield self.finding(
                "num_gpu is 0: all layers stay on the CPU, and each token takes ten times as long as on a GPU",
                "remove num_gpu: Ollama then puts as many layers on the GPU as fit",
                cases=[self.case(layers)],
            )
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
