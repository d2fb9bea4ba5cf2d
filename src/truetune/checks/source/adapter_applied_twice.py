"""A script puts an adapter on weights that it was merged into already.

## What it does
Looks at adapters that a script loads onto a model (`PeftModel.from_pretrained`, `load_adapter`, `LoRARequest`), and at
what the files next to it merge (scripts with `merge_and_unload`, `llamafactory-cli export`, `axolotl merge-lora`). It
fires if the model was written by a merge of the same adapter.

## Why it is bad
The adapter's update is added twice. The answers overshoot what was trained, loop, or are garbage, while the merged
model without the adapter answers correctly.

## Example
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/base")
PeftModel.from_pretrained(base, "out/lora").merge_and_unload().save_pretrained("out/merged")

model = AutoModelForCausalLM.from_pretrained("out/merged")
model = PeftModel.from_pretrained(model, "out/lora")
```

## Use instead
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/base")
PeftModel.from_pretrained(base, "out/lora").merge_and_unload().save_pretrained("out/merged")

model = AutoModelForCausalLM.from_pretrained("out/merged")
```

## Fix safety
Use either the merged model without an adapter, or the base with the adapter. Both give the same answers.

## References
- peft documentation, `merge_and_unload`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.find_adapters_merged_into_weights import find_merge_of_adapter
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    models_given_loaded_adapter,
    written_name_of_loaded_model,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node


class AdapterAppliedTwice(SourceRule):
    code = "SRC189"
    fault = Fault.ADAPTER_ON_MODEL_THAT_HAS_IT
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("adapters that are loaded onto a model", models_given_loaded_adapter)

    def findings(self) -> Iterator[Finding]:
        """Findings on adapters that a script puts on weights which they were merged into."""
        module = self.subject
        for one in models_given_loaded_adapter(module):
            base, adapter = (
                written_name_of_loaded_model(module, one.model),
                module.flow.value(one.adapter),
            )
            if not base or not isinstance(adapter, str):
                continue
            merge = find_merge_of_adapter(base, (adapter,), Path(module.path))
            if merge is not None:
                yield self.finding(
                    f"the adapter {adapter} is already merged into {base} and is applied again: its update counts"
                    " twice",
                    f"use {base} without the adapter, or load the base model instead of {base} and apply the"
                    " adapter to that",
                    cases=[
                        case_of_node(module, one.call.node),
                        Case(f"merges {merge.adapter}", file=merge.file, line=merge.line),
                    ],
                )
