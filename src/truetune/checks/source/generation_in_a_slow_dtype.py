"""Answers are generated in LLM.int8 or float32, which take several times as long per token as bfloat16.

## What it does
Follows the model of `generate` to the call that loads it; if it can't (a server's dictionary, a class, a pipeline), the
only load in the file counts. It is info if that load uses `load_in_8bit` of bitsandbytes (in `from_pretrained` or a
`BitsAndBytesConfig`), or float32 for a model of a billion parameters or more by its name, and nothing is trained in the
file. It is a warning if the output of nvidia-smi, a log or a job next to the script names a GPU on which the 16-bit
weights fit. If the model's name contains its size, the help says how much memory 16 bits need.

## Why it is bad
LLM.int8 splits each input into outliers and the rest, rounds it, and multiplies twice, at every layer and for every
token. It saves memory but costs time: a token takes two to five times as long as in bfloat16, most of all in small
batches. float32 reads twice the bytes for each token, and leaves half of the memory for batches. On a GPU that has room
for the 16-bit weights, both gain nothing.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

tokenizer = AutoTokenizer.from_pretrained("org/model-7B")
model = AutoModelForCausalLM.from_pretrained("org/model-7B", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("org/model-7B")
model = AutoModelForCausalLM.from_pretrained("org/model-7B", dtype="bfloat16", device_map="auto")
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Fix safety
If 16 bits do not fit, nf4 with `bnb_4bit_compute_dtype="bfloat16"` is smaller and faster. Answers change by rounding.

## References
- Dettmers et al. 2022, arXiv 2208.07339 (LLM.int8, table on inference time); bitsandbytes-foundation/bitsandbytes#6
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.find_gpus_in_files_beside import GB, GIB, GpuBeside, find_gpus_beside
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.may_weights_have_float32_copy import WIDE
from truetune.checks.source.evidence.text_generation_calls import TRANSFORMERS_PIPELINE
from truetune.checks.source.evidence.trace_answering_models_to_load import (
    EIGHT_BIT_OPTION,
    ModelChain,
    billions_of_parameters_of_model,
    is_float32_by_default,
    load_dtypes,
    model_chains,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

BYTES_OF_BFLOAT16 = 2
"""Of a weight in bfloat16"""
EIGHT_BITS = "LLM.int8 (load_in_8bit): each token takes several times as long"
CAUSAL_LOADS = (
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.AutoModelForSeq2SeqLM.from_pretrained",
    "transformers.AutoModelForImageTextToText.from_pretrained",
    "peft.AutoPeftModelForCausalLM.from_pretrained",
)
# Chosen, not measured: a quarter is left for the cache and what a step computes.
MAX_WEIGHTS = 0.75
"""Of a card, that weights in 16 bits may take"""
MIN_USED = 1e9
"""Bytes in use below which no model was loaded"""
MIN_BILLIONS = 1.0
"""Parameters from which float32 is a choice that costs something; tests and demonstrations are smaller"""


def _generating_calls_and_pipelines(module: Module) -> Iterator[ast.AST]:
    """Calls of `generate`, and pipelines."""
    for call in (*module.methods("generate"), *module.calls(TRANSFORMERS_PIPELINE)):
        yield call.node


class GenerationInASlowDtype(SourceRule):
    code = "SRC089"
    fault = Fault.GENERATION_OPTIONS_SLOW
    symptoms = ("slow-generation",)
    severity = "info"
    looks_at = CodePlaces("calls that ask a model for text", _generating_calls_and_pipelines)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if trains_anything(module) or Path(module.path).name.startswith("test_"):
            return
        seen: set[object] = set()
        for call in generate_calls(module):
            chains = model_chains(module, call.receiver) if call.receiver is not None else None
            for chain in chains or ():
                why = _cause_of_slow_tokens(module, chain)
                if chain.load.node in seen or why is None:
                    continue
                seen.add(chain.load.node)
                yield self._finding_on_load(chain.load, call, why)
        if not seen and (found := _only_8_bit_load_and_question(module)) is not None:
            yield self._finding_on_load(*found, EIGHT_BITS)

    def _finding_on_load(self, load: Call, asking: Call, why: str) -> Finding:
        """The finding on a load in a slow dtype, with the room that a card beside has."""
        module = self.subject
        billions, room = (
            billions_of_parameters_of_model(module, load),
            _gpu_named_by_nearby_files(module),
        )
        fits = _fits_in_bfloat16(room, billions)
        size = f" ({BYTES_OF_BFLOAT16 * billions:.0f} GB of weights)" if billions else ""
        where = (
            f"it fits on the {room.name}{size}" if fits and room else f"that fits on the GPU{size}"
        )
        is_certain = fits or is_float32_by_default(module, load)
        return self.finding(
            f"the model generates in {why} as in bfloat16",
            f"remove the quantization and set dtype=torch.bfloat16 in from_pretrained: {where}"
            if fits and why == EIGHT_BITS
            else f"set dtype=torch.bfloat16 in from_pretrained if {where}; 4 bits with"
            " bnb_4bit_compute_dtype=torch.bfloat16 need less",
            severity="warning" if is_certain else "info",
            evidence=_gpu_memory_evidence_lines(room) if fits and room else [],
            cases=[case_of_node(module, load.node), case_of_node(module, asking.node)],
        )


def _only_8_bit_load_and_question(module: Module) -> tuple[Call, Call] | None:
    """The one load of a file, in 8 bits, and what asks it for text; None where several models are loaded."""
    loads = [*module.calls(*CAUSAL_LOADS)]
    pipelines = [*module.calls(TRANSFORMERS_PIPELINE)]
    whole = [one for one in pipelines if not _pipeline_gets_loaded_model(module, one, loads)]
    made = [*loads, *whole]
    if len(made) != 1 or not _is_in_8_bits(module, made[0]):
        return None
    billions = billions_of_parameters_of_model(module, made[0])
    asking = [*module.methods("generate", "stream_generate"), *pipelines]
    if not asking or (billions is not None and billions < MIN_BILLIONS):
        return None
    return made[0], asking[0]


def _pipeline_gets_loaded_model(module: Module, pipeline: Call, loads: list[Call]) -> bool:
    """Is a pipeline given a model that the file loads, so that it loads none itself?"""
    model = pipeline.argument(1, "model")
    if model is None or not loads:
        return False
    return not isinstance(module.flow.value(model), str)


def _gpu_named_by_nearby_files(module: Module) -> GpuBeside | None:
    """The GPU that the files beside name or measure; None where they name none, or several sizes."""
    gpus = find_gpus_beside(module.path, module.text)
    return gpus[0] if len({one.memory for one in gpus}) == 1 else None


def _fits_in_bfloat16(gpu: GpuBeside | None, billions: float | None) -> bool:
    """Do the weights fit a card in bfloat16, with room for the cache?"""
    if gpu is None:
        return False
    if billions is not None:
        return BYTES_OF_BFLOAT16 * billions * GB <= MAX_WEIGHTS * gpu.memory
    used = gpu.reading.used if gpu.reading is not None else None
    # What is in use in 8 bits, weights and cache, takes twice as much in 16 bits at most.
    return used is not None and MIN_USED <= used <= MAX_WEIGHTS / 2 * gpu.memory


def _gpu_memory_evidence_lines(gpu: GpuBeside) -> list[str]:
    """What the file says of the card."""
    place = f"{Path(gpu.file).name}:{gpu.line}"
    if gpu.reading is None:
        return [f"{place}: {gpu.name}, {gpu.memory / GB:.0f} GB"]
    return [
        f"{place}: {gpu.name}, {(gpu.reading.used or 0.0) / GIB:.1f} of {gpu.memory / GIB:.0f} GiB in use"
    ]


def _cause_of_slow_tokens(module: Module, chain: ModelChain) -> str | None:
    """What makes each token slow; None where nothing is seen to."""
    billions = billions_of_parameters_of_model(module, chain.load)
    if billions is not None and billions < MIN_BILLIONS:
        return None
    if _is_in_8_bits(module, chain.load):
        return EIGHT_BITS
    wide = any(dtype in WIDE for dtype in load_dtypes(module, chain.load))
    narrowed = any(_may_cast_weights(module, step) for step in chain.steps)
    if not wide and not narrowed and is_float32_by_default(module, chain.load):
        wide = True
    if wide and not narrowed and billions is not None:
        return "float32: each token reads twice the bytes, and takes twice as long"
    return None


def _may_cast_weights(module: Module, step: Call) -> bool:
    """Does a step give the weights another dtype, or one that is not known?"""
    arguments = [*step.args, *step.keywords.values()]
    return step.method in ("half", "bfloat16") or any(
        (module.flow.name(one) or "").startswith("torch.") or module.flow.value(one) is UNKNOWN
        for one in arguments
        if step.method == "to"
    )


def _is_in_8_bits(module: Module, load: Call) -> bool:
    """Does a call load a model by LLM.int8?"""
    given = dict(load.keywords)
    if "model_kwargs" in given:
        entries, _ = module.flow.dict_entries_and_if_complete(given["model_kwargs"])
        given |= {str(name): node for name, node in entries.items()}
    if module.flow.value(given.get(EIGHT_BIT_OPTION)) is True:
        return True
    config = module.flow.producing_call(given.get("quantization_config"))
    return (
        config is not None
        and config.named("transformers.BitsAndBytesConfig")
        and module.flow.value(config.argument(0, EIGHT_BIT_OPTION)) is True
    )
