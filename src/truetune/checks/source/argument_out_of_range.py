"""A hyperparameter in code has a value at which the run learns nothing or diverges.

## What it does
Checks the arguments of optimizers (`lr`, `betas`, `eps`, `weight_decay`), of `clip_grad_norm_` and of adapters
(`LoraConfig`, unsloth's `get_peft_model`) against the table of ranges that `setting-out-of-range` uses for settings.
The arguments of trainers are checked there.

## Why it is bad
The loop runs and prints a loss. `clip_grad_norm_(parameters, 0)` multiplies every gradient by 0; `eps=1.0` outweighs
every gradient of a language model; `lora_alpha=1` with `r=256` multiplies what the adapter learns by 1/256.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
    model(**batch).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.0)
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
    model(**batch).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
The ranges are wide, and each finding names its source. The next run learns at another speed: compare it with a new
baseline.

## References
- Kingma and Ba, Adam (arXiv:1412.6980); Hu et al., LoRA (arXiv:2106.09685); `torch.nn.utils.clip_grad_norm_`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import NOTHING, OUT_OF_RANGE
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.hyperparameter_arguments_out_of_range import (
    has_judgeable_number,
    out_of_range_arguments,
    training_hyperparameter_calls,
)
from truetune.source.parsed_source_file import Module


def _calls_with_limited_arguments(module: Module) -> Iterator[object]:
    """The calls whose arguments stand in the table of limits."""
    return (
        hyperparameter_call
        for hyperparameter_call in training_hyperparameter_calls(module)
        if has_judgeable_number(hyperparameter_call)
    )


class ArgumentOutOfRange(SourceRule):
    code = "SRC078"
    fault = Fault.HYPERPARAMETER_OUT_OF_RANGE
    symptoms = ("loss-does-not-fall", "dpo-without-effect")
    severity = "warning"
    looks_at = CodePlaces(
        "optimizers, clipping and adapters with numbers", _calls_with_limited_arguments
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on hyperparameters in calls whose values are out of range."""
        for hyperparameter_call in training_hyperparameter_calls(self.subject):
            for out_of_range_argument in out_of_range_arguments(
                self.subject, hyperparameter_call, OUT_OF_RANGE, NOTHING
            ):
                yield self.finding(
                    out_of_range_argument.text,
                    out_of_range_argument.fix,
                    severity=out_of_range_argument.breach.limit.severity,
                    evidence=[out_of_range_argument.breach.limit.source],
                    cases=out_of_range_argument.cases,
                )
