"""Every gradient norm is exactly 0.0: nothing is trained.

## What it does
Looks for a run whose `grad_norm` is 0.0 in every record, two at least, and whose loss does not fall. In reinforcement
(GRPO, RLOO), whose loss is near 0 in any case, it fires by the norm alone, unless rewards that never differ
(`no-reward-signal`) or answers that are all cut (`completions-always-cut`) explain it.

## Why it is bad
No parameter moves. Most often an adapter was loaded by `PeftModel.from_pretrained` without `is_trainable=True`, or
every parameter was frozen; the run ends well and saves what it began with.

## Example
```yaml
curve:
  loss: {from: 5.77, steps: 20, noise: 0.05}
  grad_norm: {from: 0.0, steps: 20}
```

## Use instead
```yaml
curve:
  loss: {from: 5.77, to: 4.0, steps: 20, noise: 0.05}
  grad_norm: {from: 1.3, steps: 20, noise: 0.1}
```

## Fix safety
`is_trainable=True` only changes which parameters need gradients.

## References
- huggingface/peft#282, huggingface/peft#1410, huggingface/trl#6700
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule
from truetune.logs.reinforcement import cut, is_dead, without_signal
from truetune.logs.stats import ends, falls


class GradNormZero(LogRule):
    code = "TT803"
    severity = "error"
    needs = ("grad_norm",)

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        norm, loss = log.curve("grad_norm"), log.curve("loss").finite()
        if norm.step.size < 2 or np.any(norm.value != 0) or self._is_explained():
            return
        evidence: tuple[str, ...] = ()
        if log.kind != "reinforcement" and loss:
            if not loss.value.any() or (loss.step.size > 2 and falls(loss)):
                return
            first, last = ends(loss.value)
            evidence = (f"the loss stays: {first:.4g} at first, {last:.4g} at the end",)
        yield self.finding(
            f"the gradient norm is exactly 0.0 at all {norm.step.size:,} logged steps: no parameter is trained",
            "make parameters trainable: PeftModel.from_pretrained(..., is_trainable=True), or a fresh adapter",
            evidence=evidence,
            count=int(norm.step.size),
            total=int(norm.step.size),
            figure=figure("loss and gradient norm", {"loss": loss, "grad_norm": norm}),
        )

    def _is_explained(self) -> bool:
        """Does another finding name what leaves no gradient?"""
        log = self.subject
        return log.kind == "reinforcement" and (is_dead(without_signal(log)) or is_dead(cut(log)))
