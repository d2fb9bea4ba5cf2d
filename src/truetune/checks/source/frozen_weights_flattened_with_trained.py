"""FSDP flattens an adapter and its frozen base into one parameter, and stops with an error.

## What it does
Looks for `FullyShardedDataParallel(model)` with a PEFT model, if `use_orig_params` is missing or false and no policy
wraps the adapter's layers separately (PEFT's `fsdp_auto_wrap_policy`, a lambda policy). Not reported: `fully_shard`,
which keeps the parameters, and calls with unknown arguments. The Trainer and TRL set PEFT's policy themselves.

## Why it is bad
FSDP1 joins all parameters of a unit into one flat parameter, which is trained or frozen as a whole. A base layer with
its adapter has both kinds, and FSDP stops: "Must flatten tensors with uniform `requires_grad`". Full fine-tuning works.

## Example
```python
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(r=8))
model = FullyShardedDataParallel(model, device_id=0)
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import AutoModelForCausalLM

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(r=8))
model = FullyShardedDataParallel(model, device_id=0, use_orig_params=True)
```

## Fix safety
Safe. With `use_orig_params=True` the frozen part of a unit also takes memory for gradients; PEFT's policy avoids that.

## References
- docs.pytorch.org/docs/stable/fsdp.html: `use_orig_params`
- huggingface.co/docs/peft: "Fully Sharded Data Parallel"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces, places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

WRAPPER = "torch.*.FullyShardedDataParallel"
OWN_POLICY = re.compile(
    r"fsdp_auto_wrap_policy|lambda_auto_wrap_policy|LambdaWrapPolicy|_or_policy|CustomPolicy|ignored_(?:modules|states)"
    r"|requires_grad_\(True\)"
)
"""Signs that trained layers are wrapped by themselves, or that none is frozen"""
WRAPS: CodePlaces = places_of_calls("models that FSDP wraps", WRAPPER)


class FrozenWeightsFlattenedWithTrained(SourceRule):
    code = "SRC378"
    fault = Fault.WEIGHTS_REFUSED_BY_DDP_OR_FSDP
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = WRAPS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(OWN_POLICY.search(part.text) for part in module.self_and_files_run_together):
            return
        for call in module.calls(WRAPPER):
            model = call.argument(0, "module")
            if "peft-model" not in module.flow.types(model) or not _is_use_orig_params_off(
                module, call
            ):
                continue
            yield self.finding(
                "FSDP joins the frozen weights of the base and the trained ones of the adapter in one flat parameter,"
                " and stops (Must flatten tensors with uniform `requires_grad`)",
                "add use_orig_params=True to this call",
                cases=[case_of_node(module, call.node)],
            )


def _is_use_orig_params_off(module: Module, call: Call) -> bool:
    """Is `use_orig_params` surely off?"""
    if call.lacks("use_orig_params"):
        return True
    return module.flow.value(call.argument(-1, "use_orig_params")) is False
