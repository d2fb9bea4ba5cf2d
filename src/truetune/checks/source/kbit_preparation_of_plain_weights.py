"""Weights that are not quantized are prepared for k-bit training, which casts them to float32.

## What it does
Looks for `prepare_model_for_kbit_training(model)` if the model is loaded by a plain name without a quantization config.
Not reported if the name, or an argument, may bring a quantization.

## Why it is bad
The function casts every 16-bit weight that is not quantized to float32, to keep the norms of a 4-bit model exact.
Without quantization that is all weights: a 7B model takes 29 GB instead of 14.5, and may run out of memory before the
first step.

## Example
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", dtype=torch.bfloat16)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=8))
```

## Use instead
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3", quantization_config=config)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=8))
```

## Fix safety
With 4-bit weights training needs less memory but loses a little precision. If you want 16-bit weights, delete the call
instead: `model.gradient_checkpointing_enable()` and `model.enable_input_require_grads()` are all else that it does.

## References
- peft/utils/other.py: `prepare_model_for_kbit_training`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

KBIT_PREPARATIONS = (
    "peft.*prepare_model_for_kbit_training",
    "peft.*prepare_model_for_int8_training",
)
QUANTIZING_ARGUMENTS = frozenset(
    ("quantization_config", "load_in_4bit", "load_in_8bit", "config", "device_map_4bit")
)
QUANTIZED_NAME = re.compile(r"bit|awq|gptq|bnb|int[48]|fp8|nf4|quant|hqq|aqlm|mxfp", re.I)
"""What names of quantized checkpoints hold"""
FLOAT32_NAMES = ("float32", "float", "fp32")


class KbitPreparationOfPlainWeights(SourceRule):
    code = "SRC088"
    fault = Fault.PRECISION_SLOWER_THAN_NEEDED
    severity = "error"
    looks_at = places_of_calls("models that are prepared for k-bit training", *KBIT_PREPARATIONS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, loaded in kbit_preparations_and_loads(module):
            yield self.finding(
                "prepare_model_for_kbit_training casts all weights to float32, because the model is loaded without"
                " quantization: twice the memory of 16 bits",
                "load the model with quantization_config=BitsAndBytesConfig(load_in_4bit=True), or delete the call of"
                " prepare_model_for_kbit_training",
                cases=[case_of_node(module, call.node), case_of_node(module, loaded.node)],
            )


def kbit_preparations_and_loads(module: Module) -> Iterator[tuple[Call, Call]]:
    """The calls that prepare a model of plain weights, and what loads it."""
    for call in module.calls(*KBIT_PREPARATIONS):
        loaded = module.flow.producing_call(call.argument(0, "model"))
        if loaded is not None and _is_16_bit_load(module, loaded):
            yield call, loaded


def _is_16_bit_load(module: Module, loaded: Call) -> bool:
    """Are these weights of 16 bits, certainly not quantized?"""
    if not loaded.named("transformers.AutoModel*.from_pretrained") or loaded.open:
        return False
    name = module.flow.value(loaded.argument(0, "pretrained_model_name_or_path"))
    if (
        not isinstance(name, str)
        or QUANTIZED_NAME.search(name)
        or QUANTIZING_ARGUMENTS & loaded.keywords.keys()
    ):
        return False
    dtypes = [
        module.flow.name(loaded.keywords[key]) or ""
        for key in ("dtype", "torch_dtype")
        if key in loaded.keywords
    ]
    return not any(dtype.rpartition(".")[2] in FLOAT32_NAMES for dtype in dtypes)
