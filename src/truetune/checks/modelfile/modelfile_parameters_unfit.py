"""Modelfile parameters make correct answers impossible, or slow.

## What it does
Checks `temperature`, `top_p`, `repeat_penalty`, `frequency_penalty` and `presence_penalty` with the table of ranges
that `generation-settings-distort-answers` uses for code. `num_gpu 0` keeps all layers on the CPU. A `num_ctx` above
32,768 is info, and from 131,072 on a warning: Ollama reserves memory for the whole context, whatever the prompts are. A
`stop` of nothing but line ends cuts each answer after its first line or paragraph. `num_ctx` and `num_predict` are
compared with the chats of a training next to it: texts with more than six characters per token of the limit certainly
exceed it.

## Why it is bad
A tuned model that has learned a format needs to repeat itself: JSON keys, names, brackets. A high repetition penalty
prevents that, and a high temperature turns it into noise. A long context takes memory from the weights: Ollama leaves
layers on the CPU (`ollama ps` shows 56%/44% CPU/GPU), and each token takes ten times as long.

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
The answers change. If they loop without a penalty, the cause is in the training.

## References
- Ollama documentation, "Modelfile Reference" and "Context length"; Keskar et al., CTRL (arXiv:1909.05858), section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import GENERATION, limit_breaches, parse_setting_number
from truetune.checks.judgement import Unmet
from truetune.checks.read_training_chats_nearby import count_answers_cut_by_stop, find_nearby_chats
from truetune.checks.rule import ModelfileRule
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.parsing.read_ollama_modelfile import Instruction

OLLAMA_NAMES = {
    "repetition_penalty": "repeat_penalty",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Setting of the table -> Ollama's parameter"""
GPU_LAYERS = "num_gpu"
"""Layers that are put on the GPU, whatever its name says"""
CONTEXT = "num_ctx"
# Share of the trained answers that a stop string cuts, from which it is no mark of an end. Chosen, not measured: below
# it, a stop string in a few answers of code or lists may be wanted.
MIN_SHARE_CUT = 0.1
MOST_ANSWERED = "num_predict"
# Chosen, not measured: at half, a limit that is meant for the few long ones would warn; at double, all had to pass it.
MIN_SHARE_LONGER = 0.5
"""Share of the trained chats or answers that surely pass a limit, from which it is no choice"""
# Tokens from which it is noted: Ollama's own default for a GPU of 24 to 48 GiB ("Context length"). At half, what
# Ollama itself chooses would be noted; at double, a cache of 8 GiB would pass in silence.
MAX_QUIET_CONTEXT = 32_768
# Tokens from which it is a warning: the cache of a model of 8B takes 16 GiB, as much as its weights.
MIN_CONTEXT_OF_WARNING = 131_072
# Bytes of a model like Llama 3.1 8B: 32 layers x 8 heads x 128 x 2 (keys and values) x 2 bytes (16 bits).
CACHE_BYTES_PER_TOKEN = 131_072


class _Texts(NamedTuple):
    """The texts of a training that a parameter bounds."""

    lengths: list[int]
    """Characters of each"""
    called: str
    fate: str
    """What happens to those that are longer"""


class ModelfileParametersUnfit(ModelfileRule):
    code = "MFL006"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where no parameter is set that the rule judges."""
        parameters = self.subject.parameters
        is_set = any(name in parameters for name in (GPU_LAYERS, CONTEXT, MOST_ANSWERED))
        if is_set or self._sampling_values() or self._stop_strings():
            return None
        return Unmet(
            "it is about parameters of sampling, num_gpu, num_ctx, num_predict and stop: none is set"
        )

    def measurement_if_clean(self) -> str:
        """The parameters of the Modelfile that are judged, with their values."""
        values = {OLLAMA_NAMES[name]: value for name, value in self._sampling_values().items()}
        for name in (GPU_LAYERS, CONTEXT, MOST_ANSWERED):
            if name in self.subject.parameters:
                values[name] = self.subject.parameters[name].value
        return ", ".join(f"{name} {value}" for name, value in values.items())

    def _sampling_values(self) -> dict[str, str]:
        """Setting of the table -> its value, as the file spells it; numbers only."""
        parameters = self.subject.parameters
        return {
            name: parameters[ollama_name].value
            for name, ollama_name in OLLAMA_NAMES.items()
            if ollama_name in parameters
            and parse_setting_number(parameters[ollama_name].value) is not None
        }

    def findings(self) -> Iterator[Finding]:
        layers = self.subject.parameters.get(GPU_LAYERS)
        if layers is not None and parse_setting_number(layers.value) == 0:
            yield self.finding(
                "num_gpu is 0: all layers stay on the CPU, and each token takes ten times as long as on a GPU",
                "remove num_gpu: Ollama then puts as many layers as possible on the GPU",
                cases=[self.case_of_instruction(layers)],
            )
        yield from self._finding_on_long_context()
        yield from self._findings_on_stops_in_answers()
        yield from self._findings_on_short_limits()
        values = self._sampling_values()
        for breach in limit_breaches(values, GENERATION):
            name = OLLAMA_NAMES[breach.limit.setting]
            yield self.finding(
                breach.text(breach.limit.says, values, name),
                breach.text(breach.limit.fix, values, name),
                severity=breach.limit.severity,
                evidence=[breach.limit.source],
                cases=[self.case_of_instruction(self.subject.parameters[name])],
            )

    def _stop_strings(self) -> dict[str, Instruction]:
        """The stop strings, each with the instruction that gives it."""
        instructions = (
            one for one in self.subject.all("parameter") if one.value.startswith("stop")
        )
        return {one.value[len("stop") :].strip().strip('"'): one for one in instructions}

    def _findings_on_stops_in_answers(self) -> Iterator[Finding]:
        """Stop strings that stand in the middle of the answers which the model was trained on."""
        stops = self._stop_strings()
        yield from self._findings_on_stops_at_line_ends(stops)
        chats = find_nearby_chats(self.subject.path) if stops else None
        if chats is None:
            return
        total = len(chats.answers)
        for stop, instruction in stops.items():
            count = count_answers_cut_by_stop(chats, stop)
            if not stop or count < MIN_SHARE_CUT * total:
                continue
            yield self.finding(
                f"the stop string {stop!r} cuts off answers: {count} of {total} answers in {chats.path.name} contain"
                " it",
                "remove this PARAMETER stop: the token that ends turns is enough",
                cases=[self.case_of_instruction(instruction)],
            )

    def _findings_on_stops_at_line_ends(
        self, stops: Mapping[str, Instruction]
    ) -> Iterator[Finding]:
        """Stop strings of nothing but line ends and blanks, at which every answer of several paragraphs is cut."""
        for stop, instruction in stops.items():
            plain = stop.replace("\\n", "\n").replace("\\t", "\t")
            if plain and not plain.strip():
                yield self.finding(
                    f"the stop string {stop} is a line end: each answer ends after its first paragraph",
                    "remove this PARAMETER stop: the token that ends turns is enough",
                    cases=[self.case_of_instruction(instruction)],
                )

    def _findings_on_short_limits(self) -> Iterator[Finding]:
        """A context or a limit of answers that the chats of the training surely pass."""
        given = {name: self.subject.parameters.get(name) for name in (CONTEXT, MOST_ANSWERED)}
        chats = find_nearby_chats(self.subject.path) if any(given.values()) else None
        if chats is None:
            return
        whole = [sum(len(text) for _, text in row) for row in chats.rows]
        answers = [len(one) for one in chats.answers]
        limits = (
            (CONTEXT, _Texts(whole, "chats", "Ollama drops the beginning of such prompts")),
            (MOST_ANSWERED, _Texts(answers, "answers", "such answers are cut off")),
        )
        for name, texts in limits:
            parameter = given[name]
            if parameter is not None:
                yield from self._finding_on_short_limit(parameter, name, texts, chats.path.name)

    def _finding_on_short_limit(
        self, parameter: Instruction, name: str, texts: _Texts, file: str
    ) -> Iterator[Finding]:
        """A parameter that many of the texts of the training surely pass."""
        tokens = parse_setting_number(parameter.value)
        # -1 and -2 of num_predict are no limit.
        if tokens is None or tokens <= 0:
            return
        count = sum(one > tokens * MOST_CHARACTERS_PER_TOKEN for one in texts.lengths)
        if count == 0 or count < MIN_SHARE_LONGER * len(texts.lengths):
            return
        yield self.finding(
            f"{name} is {tokens:,.0f}, but {count} of {len(texts.lengths)} {texts.called} in {file} are certainly"
            f" longer (more than {MOST_CHARACTERS_PER_TOKEN} characters per token): {texts.fate}",
            (
                f"set {name} above the length of the longest one ({max(texts.lengths):,} characters, about"
                f" {max(texts.lengths) // 4:,} tokens of English)"
            ),
            cases=[self.case_of_instruction(parameter)],
        )

    def _finding_on_long_context(self) -> Iterator[Finding]:
        """The finding that a long context takes much memory."""
        context = self.subject.parameters.get(CONTEXT)
        tokens = parse_setting_number(context.value) if context is not None else None
        if context is None or tokens is None or tokens <= MAX_QUIET_CONTEXT:
            return
        size = tokens * CACHE_BYTES_PER_TOKEN / 2**30
        yield self.finding(
            f"num_ctx is {tokens:,.0f}: Ollama reserves the KV cache of the whole context (about {size:.0f} GiB for"
            " an 8B model), and layers that no longer fit on the GPU run on the CPU",
            "lower num_ctx to what prompt and answer need (such as 8192), until `ollama ps` shows 100% GPU; or set"
            " OLLAMA_FLASH_ATTENTION=1 and OLLAMA_KV_CACHE_TYPE=q8_0",
            severity="warning" if tokens >= MIN_CONTEXT_OF_WARNING else "info",
            cases=[self.case_of_instruction(context)],
        )
