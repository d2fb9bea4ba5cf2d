"""An engine of vLLM is created with arguments that make each answer slow.

## What it does
Looks at `vllm.LLM(...)` and the arguments of its engines in a file that trains nothing, for arguments whose cost is
certain: `max_num_seqs` of 8 or less, `cpu_offload_gb` above 0, `dtype="float32"`, `quantization="bitsandbytes"`, and
`"awq"` or `"gptq"`, which select the old kernels. `enforce_eager=True` is info: it costs speed at each token, but saves
memory and start-up time.

## Why it is bad
vLLM is fast because it computes one token of many answers at once, with a recorded CUDA graph. One sequence at a time,
weights that cross the bus for each token, or layers that are dequantized for each token undo that, without a message.

## Example
```python
from vllm import LLM, SamplingParams

llm = LLM("tuned", max_num_seqs=1, max_model_len=4096)
print(llm.generate(prompts, SamplingParams(max_tokens=300)))
```

## Use instead
```python
from vllm import LLM, SamplingParams

llm = LLM("tuned", max_num_seqs=64, max_model_len=4096)
print(llm.generate(prompts, SamplingParams(max_tokens=300)))
```

## Fix safety
More sequences need more cache memory: if the engine does not start, lower `max_model_len` first. Answers may differ
slightly between batch sizes, because of rounding.

## References
- vLLM documentation, engine arguments; vllm-project/vllm#4449
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

VLLM_ENGINES = ("vllm.LLM", "vllm.*EngineArgs")


SMALL_CAP = 8
"""Requests at once up to which a cap surely leaves a GPU idle. Chosen: where memory allows few requests, the cache of
keys and values bounds them by itself"""


def describe_concurrency(cap: int) -> str:
    """How many prompts a cap lets run at a time, in words: `one prompt after another`, `4 prompts
    at a time, and all others wait`.
    """
    return (
        "one prompt after another"
        if cap == 1
        else f"only {cap} prompts at a time, and all others wait"
    )


class SlowArgument(NamedTuple):
    """An argument that costs speed."""

    spelled: str
    why: str
    instead: str
    is_certain: bool = True
    """It is slow at any size; else the price depends on the model and on how many requests there are"""


def _generating_engines(module: Module) -> Iterator[Call]:
    """The engines of a file that only generates."""
    return iter(()) if trains_anything(module) else module.calls(*VLLM_ENGINES)


class VllmEngineArgumentsSlowGeneration(SourceRule):
    code = "SRC001"
    fault = Fault.GENERATION_OPTIONS_SLOW
    symptoms = ("slow-generation",)
    severity = "warning"
    looks_at = CodePlaces("engines of vLLM in a file that trains nothing", _generating_engines)

    def findings(self) -> Iterator[Finding]:
        """Findings on engines of vLLM that are made with arguments which make answers slow."""
        for call in _generating_engines(self.subject):
            slow = list(_slow_arguments(self.subject, call))
            if slow:
                yield self.finding(
                    f"this engine generates slowly: {'; '.join(one.why for one in slow)}",
                    "; ".join(one.instead for one in slow),
                    severity="warning" if any(one.is_certain for one in slow) else "info",
                    cases=[case_of_node(self.subject, call.node, one.spelled) for one in slow],
                )


def _slow_arguments(module: Module, call: Call) -> Iterator[SlowArgument]:
    """The arguments of an engine that make each token slow."""

    def value(name: str) -> Any:
        return module.flow.value(call.keywords.get(name))

    cap = value("max_num_seqs")
    if type(cap) is int and 1 <= cap <= SMALL_CAP:
        yield SlowArgument(
            f"max_num_seqs={cap}",
            f"max_num_seqs={cap} answers {describe_concurrency(cap)}",
            "set max_num_seqs=64, or remove max_num_seqs",
        )
    offloaded = value("cpu_offload_gb")
    if isinstance(offloaded, int | float) and offloaded > 0:
        yield SlowArgument(
            f"cpu_offload_gb={offloaded}",
            "cpu_offload_gb sends weights over the bus for each token",
            "remove cpu_offload_gb, and load a quantized model or set tensor_parallel_size to the number of GPUs",
        )
    if value("dtype") in ("float32", "float"):
        yield SlowArgument(
            'dtype="float32"',
            "float32 reads twice the bytes for each token",
            'set dtype="bfloat16"',
        )
    quantized = value("quantization")
    if quantized in ("awq", "gptq"):
        yield SlowArgument(
            f'quantization="{quantized}"',
            f'quantization="{quantized}" forces the old kernel although GPUs since Ampere have the faster Marlin'
            " kernel",
            f'remove quantization (vLLM reads it from the checkpoint), or set quantization="{quantized}_marlin"',
        )
    if quantized == "bitsandbytes":
        yield SlowArgument(
            'quantization="bitsandbytes"',
            "bitsandbytes dequantizes each layer for each token",
            "remove quantization if the model fits in bfloat16, else load an AWQ, GPTQ or FP8 checkpoint",
        )
    if value("enforce_eager") is True:
        yield SlowArgument(
            "enforce_eager=True",
            "enforce_eager switches CUDA graphs off",
            "remove enforce_eager",
            is_certain=False,
        )
