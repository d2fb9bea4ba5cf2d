"""A 4-bit model computes in float32, because no compute dtype is set.

## What it does
Looks for 4-bit loading with bitsandbytes (`BitsAndBytesConfig`, or `load_in_4bit` in `from_pretrained`) without
`bnb_4bit_compute_dtype`. Not reported: calls with unknown arguments, and settings that get it afterwards.

## Why it is bad
`bnb_4bit_compute_dtype` defaults to float32, whatever the dtype of the model: each linear layer unpacks its weights to
float32, casts its input and multiplies in float32. The GPU's bf16 units stay idle, and generation and training are
several times slower than in bfloat16.

## Example
```python
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=quantization)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="bfloat16")
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=quantization)
```

## Fix safety
Unsafe: answers change by rounding. GPUs older than Ampere (T4, V100) have no bfloat16 units: use `"float16"` there.

## References
- huggingface/transformers `BitsAndBytesConfig`, bitsandbytes-foundation/bitsandbytes `Linear4bit`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_quantization_configs_and_readers import (
    BITSANDBYTES_CONFIG,
    quantization_configs_that_are_read,
)
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module

LOADERS = ("transformers.*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
DTYPE = "bnb_4bit_compute_dtype"


def _loads_in_4bit(module: Module) -> Iterator[Call]:
    """Calls that say that a model is loaded in 4 bits."""
    for call in (*quantization_configs_that_are_read(module), *module.calls(*LOADERS)):
        position = 1 if call.named(BITSANDBYTES_CONFIG) else -1
        if module.flow.value(call.argument(position, "load_in_4bit")) is True:
            yield call


def _is_dtype_set_as_attribute(module: Module) -> bool:
    """Is the dtype set as an attribute: `quantization.bnb_4bit_compute_dtype = torch.bfloat16`?"""
    attributes = (
        node for part in module.self_and_files_run_together for node in part.nodes(ast.Attribute)
    )
    return any(node.attr == DTYPE and isinstance(node.ctx, ast.Store) for node in attributes)


class FourBitComputedInFloat32(SourceRule):
    code = "SRC072"
    fault = Fault.PRECISION_SLOWER_THAN_NEEDED
    severity = "warning"
    looks_at = CodePlaces("models that are loaded in 4 bits", _loads_in_4bit)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.this_or_linked_file_imports_unsloth or _is_dtype_set_as_attribute(module):
            return
        for call in _loads_in_4bit(module):
            argument = call.argument(6 if call.named(BITSANDBYTES_CONFIG) else -1, DTYPE)
            is_none = argument is not None and module.flow.value(argument) is None
            if is_none or (
                argument is None and not call.open and "quantization_config" not in call.keywords
            ):
                yield self.finding(
                    f"the 4-bit model computes in float32, because {DTYPE} is not set: this is several times"
                    " slower than bfloat16",
                    f'set {DTYPE}="bfloat16" ("float16" on a GPU without bfloat16, such as a T4)',
                    cases=[case_of_node(module, call.node)],
                    fix=fix_of_changes(
                        module, set_keyword(module, call, DTYPE, '"bfloat16"'), safe=False
                    ),
                )
