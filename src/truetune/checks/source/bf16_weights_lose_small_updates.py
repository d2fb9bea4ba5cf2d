"""A hand-written loop updates bfloat16 weights with a learning rate too small for their precision.

## What it does
Looks for a model that is loaded or cast as bfloat16, whose parameters go into an AdamW of torch or bitsandbytes with a
learning rate below 1e-4 (in the code, or as the default of an option), without an adapter. DistributedDataParallel and
torch.compile around the model make no difference.

## Why it is bad
bfloat16 has 8 bits of mantissa: near 1.0 the smallest step is 0.0078. Most updates round to nothing: after 20 steps at
1e-5, all norm weights and 84 % of the linear weights were bit for bit unchanged.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
```

## Fix safety
float32 weights need twice the memory. Keep the forward pass fast with `with torch.autocast("cuda",
dtype=torch.bfloat16):`. An optimizer with stochastic rounding, or one that keeps a float32 copy, solves it too.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, pytorch/ao#1124, vllm-project/speculators#668
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.half_precision_weights_updated_in_place import (
    optimizers_of_weights_in_dtype,
)
from truetune.checks.source.evidence.script_start_commands_and_reserved_gpus import (
    is_option_given_by_starts,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Option

# Half the distance of bfloat16 numbers is 6e-5 at 0.02, a usual weight: from about here on most steps are kept.
SMALL_RATE = 1e-4
ADAM_OPTIMIZERS = (
    "torch.optim.AdamW",
    "torch.optim.Adam",
    "bitsandbytes.*Adam*",
)


class Bf16WeightsLoseSmallUpdates(SourceRule):
    code = "SRC060"
    fault = Fault.UPDATES_ROUNDED_AWAY
    severity = "warning"
    since = "0.1.0"
    looks_at = places_of_calls("Adam optimizers that are made", *ADAM_OPTIMIZERS)

    def findings(self) -> Iterator[Finding]:
        """Findings on loops that update bfloat16 weights in place with a small learning rate."""
        module = self.subject
        for weights in optimizers_of_weights_in_dtype(module, "bfloat16", *ADAM_OPTIMIZERS):
            optimizer, cause = weights
            rate = _written_or_default_rate(module, optimizer)
            if rate is None or not 0 < rate < SMALL_RATE:
                continue
            yield self.finding(
                f"bfloat16 weights are updated in place at a learning rate of {rate:g}: most updates"
                " round to nothing",
                "load the weights with dtype=torch.float32; run the forward pass under"
                ' torch.autocast("cuda", dtype=torch.bfloat16)',
                cases=[
                    case_of_node(optimizer.home, optimizer.node),
                    case_of_node(cause.home, cause.node),
                ],
            )


def _written_or_default_rate(module: Module, optimizer: CallEvent) -> float | None:
    """The rate of an optimizer: written, or the default of an option that no command beside gives; else None."""
    lr_argument = optimizer.argument(1, "lr")
    if isinstance(lr_argument, Option) and is_option_given_by_starts(module.path, lr_argument.name):
        return None
    rate = constant_of(lr_argument)
    return rate if isinstance(rate, float) else None
