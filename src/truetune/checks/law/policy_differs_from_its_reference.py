"""The reference is not the model that the policy starts from.

## What it does
Computes the trainer's own loss on some real pairs before the first step, without dropout, and reads the rewards that it
logs. It fires if they are not 0 within rounding: the policy is not its own reference.

## Why it is bad
The penalty then pulls towards another model: the base instead of the SFT model, or one with another template. The
curves look normal or better, since the policy starts with a margin. The sigmoid loss must start at ln 2 = 0.6931.

## Example

```python
torch.manual_seed(1)
other = transformers.LlamaForCausalLM(model.config)
run = trl.DPOTrainer(model, ref_model=other, args=arguments(trl.DPOConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
import copy
run = trl.DPOTrainer(model, ref_model=copy.deepcopy(model), args=arguments(trl.DPOConfig), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix. With the right reference, rewards start at 0.

## References

- huggingface/trl#1193, huggingface/trl#1340, huggingface/trl#4723
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.law.evidence.is_deeper_law_broken import any_law_broken
from truetune.checks.rule import LawRule


class PolicyDiffersFromItsReference(LawRule):
    code = "LAW022"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "dpo-start"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        # Log-probabilities that came with the data have a law of their own, and dropout makes any
        # two passes differ.
        """The finding that the reference is not the model that the policy starts from."""
        if evidence["precomputed"] or any_law_broken(self.subject, "reference-dropout"):
            return
        losses = sorted(row["loss"] for row in evidence["rows"])
        expected = (
            f"; it should be {evidence['expected']:.4f}" if evidence["expected"] is not None else ""
        )
        yield self.finding(
            f"before the first step the policy differs by up to {value:.2g} per token (log-probability) from its"
            f" reference, which is {evidence['reference']}",
            "use the model that the policy starts from as the reference (ref_model): for a trained SFT adapter, its"
            " frozen copy or the merged model, not the base without it",
            evidence=[
                f"first losses: {losses[0]:.4f} to {losses[-1]:.4f}{expected}",
                *(
                    f"row {i}: log-ratio of the policy {_show_log_ratios(row)}"
                    for i, row in enumerate(evidence["rows"])
                ),
                f"rounding explains up to {tolerance:.0e} per token",
            ],
        )


def _show_log_ratios(row: dict[str, float]) -> str:
    """The log ratios of both sides as text: `chosen +0.120, rejected -0.040`."""
    return ", ".join(f"{side} {row[side]:+.3f}" for side in ("chosen", "rejected") if side in row)
