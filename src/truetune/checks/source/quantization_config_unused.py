"""A quantization config is created, but no model gets it.

## What it does
Tracks a `BitsAndBytesConfig` (and the configs of GPTQ, HQQ, Quanto and torchao) in a file that loads a model. It fires
if the config is in a variable or dictionary that nothing reads, is passed to a parameter that its function never reads,
is passed to `PeftModel.from_pretrained` (which loads no base), or is set on `model.config` of a model that is already
loaded. It does not fire if the name may be read elsewhere: an attribute of a class, a `global`, a string, another file
that runs with it.

## Why it is bad
The model is loaded without quantization: 13 billion parameters take 26 GB in bfloat16 instead of 7 GB in 4 bits, and a
run that was planned for one GPU of 24 GB runs out of memory while it loads.

## Example
```python
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16")
model = AutoModelForCausalLM.from_pretrained("model")
```

## Use instead
```python
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16")
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=settings)
```

## Fix safety
There is no automatic fix: a file may load several models, and perhaps only one should be quantized. Quantized weights
give slightly different outputs and need less memory.

## References
- huggingface/transformers documentation, "bitsandbytes": `from_pretrained(quantization_config=...)`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_quantization_configs_and_readers import (
    QUANTIZATION_SETTINGS,
    is_config_never_read,
)


class QuantizationConfigUnused(SourceRule):
    code = "SRC039"
    fault = Fault.MODEL_NOT_QUANTIZED_AS_INTENDED
    symptoms = ("nothing-is-learned", "out-of-memory")
    severity = "error"
    looks_at = places_of_calls("settings of a quantization that are built", *QUANTIZATION_SETTINGS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls(*QUANTIZATION_SETTINGS):
            # A config that goes into a function of another library may be used there: such a one is no finding.
            if is_config_never_read(module, call):
                yield self.finding(
                    f"{_built_object_in_words(call)} is created, but no model gets it: the weights are loaded without"
                    " quantization",
                    "pass it to from_pretrained as quantization_config= (if the trainer loads the model by name:"
                    ' in model_init_kwargs={"quantization_config": ...})',
                    cases=[case_of_node(module, call.node)],
                )


def _built_object_in_words(call: Call) -> str:
    """The object that a call builds, named after its class: `a BitsAndBytesConfig`."""
    name = call.names[0].rpartition(".")[2]
    return f"a {name}" if name.endswith("Config") else "a quantization config"
