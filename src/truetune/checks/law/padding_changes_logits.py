"""Padding a row changes the model's results for its own tokens.

## What it does
Runs real rows through the real model in training mode, alone and together as a padded batch, and compares the logits of
the rows' own tokens. It fires if they differ by more than rounding explains. It is an error on the side on which the
trainer pads, and a warning if only left padding does it, with positions as in generation.

## Why it is bad
What the model learns from a row then depends on the lengths of the rows beside it, and a batch of one gives other
results than larger ones. Left padding does this to models with learned absolute positions.

## Example

```python
tokenizer.padding_side = "left"
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. Right padding in training changes nothing in serving; generation with left padding needs
`position_ids`.

## References

- huggingface/transformers#24839, huggingface/transformers#34842, bigscience-workshop/t-zero#29
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class PaddingChangesLogits(LawRule):
    code = "LAW001"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("garbage-output", "odd-metrics")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "padding-invariance"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the model computes something else when a row is padded."""
        worst: dict[str, float] = evidence["by padding"]
        # The law pads in the ways of training (right) and of generation (left). `not <=` counts nan
        # as broken.
        training = any(
            not difference <= tolerance
            for name, difference in worst.items()
            if "generation" not in name
        )
        yield self.finding(
            f"padding a row changes the logits of its own tokens by {value:.2g} times the largest logit"
            f" (rounding explains up to {tolerance:.0e})",
            (
                'set tokenizer.padding_side = "right" for training, or pass position_ids that do not count the pads'
                if training
                else "nothing to change for training; generate without padding, one row at a time"
            ),
            severity="error" if training else "warning",
            evidence=[f"{name}: {difference:.2g}" for name, difference in worst.items()],
        )
