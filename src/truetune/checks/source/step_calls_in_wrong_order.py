"""Calls within a training step are in an order that does harm.

## What it does
Tracks GradScalers, optimizers, schedules, samplers and accelerate through the script, its functions and the files that
it imports, and reports two calls in the wrong order: gradients that are clipped before they are unscaled, a scaler that
is never updated, a plain `optimizer.step()` on scaled gradients, clipping after the step, a schedule that steps before
its optimizer. All states and orders: docs/training-code-protocol.md. It does not fire if a branch, or a function that
is not in the files, may change the order.

## Why it is bad
The loop runs with a finite loss, but a clipping limit of 1.0 on gradients that are multiplied by 65,536 (float16)
reduces them to almost nothing. A scaler that is never updated stops at the second step, and a schedule that steps first
skips its first learning rate.

## Example
```python
import torch

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
```

## Use instead
```python
import torch

scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: you decide which of the two calls to move.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
- https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
- https://huggingface.co/docs/accelerate/basic_tutorials/migration
"""

from __future__ import annotations

from truetune.checks.faults import Fault
from truetune.checks.source.evidence.training_protocol.base_of_protocol_rules import (
    ProtocolRule,
    calls_of_protocols,
)
from truetune.checks.source.evidence.training_protocol.protocols_of_steps import PROTOCOLS_OF_STEPS


class StepCallsInWrongOrder(ProtocolRule):
    code = "SRC441"
    fault = Fault.TRAINING_CALLS_IN_WRONG_ORDER
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    protocols = PROTOCOLS_OF_STEPS
    looks_at = calls_of_protocols("calls of a training step", PROTOCOLS_OF_STEPS)
