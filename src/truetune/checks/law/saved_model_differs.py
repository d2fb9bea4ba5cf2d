"""The saved and reloaded model is not the model that was trained.

## What it does
On a miniature or copy of the run (`truetune rehearse`, or laws: all), changes every trained tensor a little, saves as
the trainer does, loads the files (an adapter onto the original base) and compares the logits of a real batch. It fires
if they differ by more than rounding explains.

## Why it is bad
The training is lost, in part or completely, and the loss curve does not show it. Usual causes are a trained head that
is not in the adapter's `modules_to_save`, a head that its config ties again on loading, or a dtype with fewer bits.

## Example

```python
adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
adapted.get_output_embeddings().weight.requires_grad_(True)
run = transformers.Trainer(adapted, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"])
adapted = peft.get_peft_model(model, config)
run = transformers.Trainer(adapted, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. More saved modules make the adapter's file larger.

## References

- huggingface/trl#1379, huggingface/peft#577, huggingface/peft#876, huggingface/transformers#26160
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class SavedModelDiffers(LawRule):
    code = "LAW010"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("garbage-output", "nothing-is-learned", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "save-load"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that the model that is saved and loaded is not the model that was trained."""
        yield self.finding(
            f"after saving and loading, the model's logits differ by {value:.2g} times the largest logit"
            f" (rounding explains up to {tolerance:.0e})",
            "list every fully trained module in modules_to_save of LoraConfig, and check tie_word_embeddings in"
            " config.json and the dtype that is saved",
            evidence=[
                (
                    f"{evidence['tensors that differ']} tensors differ:"
                    f" {', '.join(evidence['differ'][:4])}"
                ),
                f"files: {', '.join(evidence['files'])}",
            ],
        )
