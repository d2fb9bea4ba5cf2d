"""Calls that save or resume a run are in an order that loses a part of it.

## What it does
Tracks accelerate, optimizers, wrapped models and tokenizers through the script, its functions and the files that it
imports, and reports two calls in the wrong order: a state that is loaded before anything is prepared, a model that is
moved after its optimizer got the saved state, a tokenizer that changes after it was saved. All states and orders:
docs/training-code-protocol.md. It does not fire if a branch, or a function that is not in the files, may change the
order.

## Why it is bad
The resumed run starts from the beginning, or stops at its first step; the saved folder lacks what was added last.

## Example
```python
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
accelerator.load_state("last")
model, optimizer = accelerator.prepare(model, optimizer)
```

## Use instead
```python
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.load_state("last")
```

## Fix safety
There is no automatic fix: you decide which of the two calls to move.

## References
- https://huggingface.co/docs/accelerate/usage_guides/checkpoint
- pytorch/pytorch#2830
"""

from __future__ import annotations

from truetune.checks.faults import Fault
from truetune.checks.source.evidence.training_protocol.base_of_protocol_rules import (
    ProtocolRule,
    calls_of_protocols,
)
from truetune.checks.source.evidence.training_protocol.protocols_of_saves import PROTOCOLS_OF_SAVES


class SaveCallsInWrongOrder(ProtocolRule):
    code = "SRC442"
    fault = Fault.TRAINING_RESULT_LOST
    symptoms = ("nothing-is-learned",)
    severity = "error"
    protocols = PROTOCOLS_OF_SAVES
    looks_at = calls_of_protocols("calls that save or resume a run", PROTOCOLS_OF_SAVES)
