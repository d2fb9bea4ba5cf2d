"""Precomputed reference log-probabilities are not those of the reference.

## What it does
Computes the reference's log-probabilities of some rows again and compares them with the columns `ref_chosen_logps` and
`ref_rejected_logps` that reach the loss.

## Why it is bad
The columns do not say which model made them. After a shuffle, with another template or truncation, or with another
checkpoint, each pair is compared with wrong numbers, and rewards do not start at 0.

## Example

```python
import copy

args = arguments(trl.DPOConfig, precompute_ref_log_probs=True)
run = trl.DPOTrainer(model, ref_model=copy.deepcopy(model), args=args, processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
columns = ["ref_chosen_logps", "ref_rejected_logps"]
numbers = run.train_dataset.select_columns(columns).select([*range(1, 8), 0])
run.train_dataset = datasets.concatenate_datasets([run.train_dataset.remove_columns(columns), numbers], axis=1)
```

## Use instead

```python
import copy

args = arguments(trl.DPOConfig, precompute_ref_log_probs=True)
run = trl.DPOTrainer(model, ref_model=copy.deepcopy(model), args=args, processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix. Computing them again takes one pass of the reference over the data.

## References

- huggingface/trl#1962, huggingface/trl#2423, huggingface/trl#6443
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class PrecomputedReferenceStale(LawRule):
    code = "LAW023"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    symptoms = ("dpo-without-effect",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "precomputed-reference"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that reference log-probabilities computed beforehand are not those of the reference."""
        rows = evidence["rows"]
        pairs = [
            f"pair {i}: precomputed {_show_chosen_and_rejected(row['given'])},"
            f" now {_show_chosen_and_rejected(row['live'])}"
            for i, row in enumerate(rows[:4])
        ]
        yield self.finding(
            f"the precomputed log-probabilities of the reference differ by up to {value:.2g}"
            " per token from those of the reference in this run",
            "remove the columns ref_chosen_logps and ref_rejected_logps and compute them again with this model,"
            " template, truncation and order of rows (precompute_ref_log_probs=True)",
            evidence=[*pairs, f"rounding explains up to {tolerance:.0e} per token"],
        )


def _show_chosen_and_rejected(values: list[float]) -> str:
    """The log-probabilities of chosen and rejected."""
    return " and ".join(f"{value:.2f}" for value in values[:2])
