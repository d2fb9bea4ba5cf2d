"""An adapter is merged into a base that was loaded in 4 or 8 bits.

## What it does
Follows a base loaded with `load_in_4bit`, `load_in_8bit` or a `quantization_config`, or from a repository with such
weights by its name (`...-bnb-4bit`), into an adapter whose `merge_and_unload` is called: through wrappers, helper
functions, and a trainer (`trainer.model.merge_and_unload()`). Not reported if the model may also come from another
load, or if `dequantize()` was called on it.

## Why it is bad
The merge dequantizes, adds and quantizes again: most of a small adapter is rounded away, and the merged model is closer
to the base than to the trained model.

## Example
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

base = AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model = PeftModel.from_pretrained(base, "adapter")
model = model.merge_and_unload()
```

## Use instead
```python
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
model = PeftModel.from_pretrained(base, "adapter")
model = model.merge_and_unload()
```

## Fix safety
It needs memory for the unquantized base; a CPU will do (`device_map="cpu"`).

## References
- huggingface/peft#1043, huggingface/peft#2105, huggingface/peft#2321, artidoro/qlora#28, artidoro/qlora#254
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import MERGES
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.quantized_loads import quantized_load_of_model


class MergeIntoQuantizedBase(SourceRule):
    code = "SRC049"
    fault = Fault.MERGE_LOSES_ADAPTER
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = MERGES

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.methods("merge_and_unload"):
            loaded = (
                quantized_load_of_model(module, call.receiver)
                if call.receiver is not None
                else None
            )
            if loaded is not None:
                yield self.finding(
                    "an adapter is merged into a quantized base: most of the adapter is rounded away",
                    "save the adapter, load the base without quantization (a repository with unquantized weights,"
                    ' dtype=torch.bfloat16, device_map="cpu" if the GPU is too small), and merge into that',
                    cases=[case_of_node(module, call.node), case_of_node(module, loaded)],
                )
