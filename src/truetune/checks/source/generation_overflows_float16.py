"""A model generates in float16, and its activations are too large for that format.

## What it does
Follows the model of `generate`, and pipelines, to the call that loads the weights. It fires if that uses float16
(`dtype`, `torch_dtype`, `.half()`) for a Gemma 3 model, by its name or its config.json on this machine, or for a folder
into which a training of the project saves one. For T5 and its relatives only `.half()` counts: `from_pretrained` keeps
the overflowing layers in float32.

## Why it is bad
float16 ends at 65,504, and Gemma 3 exceeds it inside its layers. The logits become NaN: the answer is nothing but
`<pad>`, or sampling stops with "probability tensor contains either `inf`, `nan` or element < 0". Training and merge are
fine, and so are the answers on a GPU with bfloat16.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("google/gemma-3-4b-it")
model = AutoModelForCausalLM.from_pretrained("google/gemma-3-4b-it", dtype=torch.float16).to("cuda")
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("google/gemma-3-4b-it")
model = AutoModelForCausalLM.from_pretrained("google/gemma-3-4b-it", dtype=torch.bfloat16).to("cuda")
out = model.generate(**tokenizer("Hi", return_tensors="pt").to("cuda"), max_new_tokens=20)
```

## Fix safety
bfloat16 needs an Ampere GPU or newer (A10, RTX 30). A T4 or V100 computes it slowly, or not at all: use float32 there,
or 4 bits with `bnb_4bit_compute_dtype=torch.float32`. A GGUF in llama.cpp is not affected.

## References
- huggingface/transformers#36822; Unsloth documentation, "Gemma 3" (float16); huggingface/transformers#4586 (T5)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.may_weights_have_float32_copy import FLOAT16
from truetune.checks.source.evidence.model_dtypes import (
    PIPELINE,
    dtypes_cast_by_steps,
    model_name_argument,
    model_type_of_folder,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.published_bases_of_folders import overflowing_family_of_folder
from truetune.checks.source.evidence.trace_answering_models_to_load import load_dtypes, model_chains
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OVERFLOWING_BY_SIZE = "gemma3"
"""Beginning of the families that overflow however they are loaded, without signs between"""


def _generating_calls_and_pipelines(module: Module) -> Iterator[Call]:
    """The calls that generate, and pipelines."""
    yield from generate_calls(module)
    yield from module.calls(PIPELINE)


class GenerationOverflowsFloat16(SourceRule):
    code = "SRC094"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_at = CodePlaces("models that generate, and pipelines", _generating_calls_and_pipelines)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if trains_anything(module):
            return  # see bf16-model-run-in-fp16
        seen: set[object] = set()
        for load, is_cast in _float16_loads_with_cast_flag(module):
            family = _family_overflowing_in_float16(module, load)
            if load.node in seen or family is None:
                continue
            if not is_cast and not _plain_family_name(family).startswith(OVERFLOWING_BY_SIZE):
                continue
            seen.add(load.node)
            yield self.finding(
                f"{family} generates in float16, whose largest number is 65,504: its activations overflow, the"
                " logits are NaN, and the answers contain only <pad>",
                "load it with dtype=torch.bfloat16, or on a GPU without bfloat16 (T4, V100) with dtype=torch.float32",
                cases=[case_of_node(module, load.node)],
            )


def _float16_loads_with_cast_flag(module: Module) -> Iterator[tuple[Call, bool]]:
    """What loads a model that generates in float16, and whether a cast makes it so."""
    for call in module.calls(PIPELINE):
        if set(load_dtypes(module, call)) & FLOAT16.names:
            yield call, False
    for call in generate_calls(module):
        chains = model_chains(module, call.receiver) if call.receiver is not None else None
        for chain in chains or ():
            # Steps stand from the last to the first: the last that names a dtype decides.
            dtype, is_cast = dtypes_cast_by_steps(module, chain.steps), True
            if not dtype:
                dtype, is_cast = set(load_dtypes(module, chain.load)), False
            if dtype & FLOAT16.names:
                yield chain.load, is_cast


def _family_overflowing_in_float16(module: Module, load: Call) -> str | None:
    """The family that overflows in float16, by the model's name, its config.json, or what was trained into it.

    None for any other.
    """
    names = possible_texts(module, model_name_argument(load))
    found = {
        family_known_to_overflow_float16(name)
        or family_known_to_overflow_float16(model_type_of_folder(module, name))
        or overflowing_family_of_folder(Path(module.path), name)
        for name in names
    }
    return found.pop() if len(found) == 1 else None


def _plain_family_name(family: str) -> str:
    """A family's name without signs, as names of models are compared."""
    return family.replace("-", "").replace("_", "")
