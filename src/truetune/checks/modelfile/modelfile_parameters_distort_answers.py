"""Parameters of the Modelfile make right answers impossible, or slow.

## What it does
Judges `temperature`, `top_p`, `repeat_penalty`, `frequency_penalty` and `presence_penalty` by the table of ranges that
`generation-settings-distort-answers` uses for code. `num_gpu 0` keeps all layers on the CPU. A `num_ctx` above 32,768
is noted, and from 131,072 on it is a warning: Ollama sets memory aside for the whole context, whatever the prompts are.

## Why it is bad
A tuned model that has learned a format needs to repeat itself: keys of JSON, names, brackets. A high penalty on
repetition takes that away, a high temperature makes noise of it. What the cache of a long context takes is missing for
the weights: Ollama leaves layers on the CPU (`ollama ps` shows 56%/44% CPU/GPU), and each token takes ten times as
long.

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
- Ollama documentation, "Modelfile Reference" and "Context length"; Keskar et al., CTRL (arXiv:1909.05858), section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.chats_beside import answers_with, chats_beside
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ModelfileRule
from truetune.checks.value_limits import GENERATION, breaches, number
from truetune.parsing.modelfile import Instruction

NAMES = {
    "repetition_penalty": "repeat_penalty",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Setting of the table -> Ollama's parameter"""
MIN_SHARE = 0.1
"""Trained answers that a stop string cuts, from which it is no mark of an end"""
LAYERS = "num_gpu"
"""Layers that are put on the GPU, whatever its name says"""

CONTEXT = "num_ctx"
LONG_CONTEXT, VAST_CONTEXT = 32_768, 131_072
"""Tokens. Ollama's own defaults are 32,768 for a GPU of 24 to 48 GiB, and more only above ("Context length")"""
CACHE_PER_TOKEN = 131_072
"""Bytes of a model like Llama 3.1 8B: 32 layers x 8 heads of keys and values x 128 x 2 bytes each, in 16 bits"""


class ModelfileParametersDistortAnswers(ModelfileRule):
    code = "MFL006"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        given = self.subject.parameters
        if self._values() or LAYERS in given or CONTEXT in given or self._stops():
            return None
        return Unmet("it is about parameters of sampling, num_gpu, num_ctx and stop: none is set")

    def figure(self) -> str:
        given = {NAMES[name]: value for name, value in self._values().items()}
        for name in (LAYERS, CONTEXT):
            if name in self.subject.parameters:
                given[name] = self.subject.parameters[name].value
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
        yield from self._long_context()
        yield from self._stops_in_answers()
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

    def _stops(self) -> dict[str, Instruction]:
        """The stop strings, each with the instruction that gives it."""
        found = (one for one in self.subject.all("parameter") if one.value.startswith("stop"))
        return {one.value[len("stop") :].strip().strip('"'): one for one in found}

    def _stops_in_answers(self) -> Iterator[Finding]:
        """Stop strings that stand in the middle of the answers which the model was trained on."""
        stops = self._stops()
        chats = chats_beside(self.subject.path) if stops else None
        for stop, instruction in stops.items() if chats is not None else ():
            assert chats is not None
            count, total = answers_with(chats, stop), len(chats.answers)
            if stop and count >= MIN_SHARE * total:
                yield self.finding(
                    f"answers end at the stop string {stop!r}, which stands in {count} of {total} answers of"
                    f" {chats.path.name}: they are cut off there",
                    "remove this PARAMETER stop: the mark that ends turns is enough",
                    cases=[self.case(instruction)],
                )

    def _long_context(self) -> Iterator[Finding]:
        """The memory that a long context takes."""
        given = self.subject.parameters.get(CONTEXT)
        tokens = number(given.value) if given is not None else None
        if given is None or tokens is None or tokens <= LONG_CONTEXT:
            return
        size = tokens * CACHE_PER_TOKEN / 2**30
        yield self.finding(
            f"num_ctx is {tokens:,.0f}: the cache of the whole context is set aside beside the weights (about"
            f" {size:.0f} GiB for a model of 8B), and layers that no longer fit the GPU run on the CPU",
            "lower num_ctx to what prompt and answer need (8192), until `ollama ps` says 100% GPU; or set"
            " OLLAMA_FLASH_ATTENTION=1 and OLLAMA_KV_CACHE_TYPE=q8_0",
            severity="warning" if tokens >= VAST_CONTEXT else "info",
            cases=[self.case(given)],
        )
