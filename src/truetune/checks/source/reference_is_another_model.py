"""The reference of a preference training is not the model that the policy starts from.

## What it does
Traces `model` and `ref_model` of TRL's trainers (DPO, KTO, BCO, PPO), and the models of the two forward passes in a
hand-written preference loss, back to the calls that load them, and compares their names. It does not fire if a name is
only known at run time, or if an adapter or other weights are loaded into either of them: then the names do not identify
the model.

## Why it is bad
The reference is what the policy is kept close to, and what its rewards are measured against. If the policy is an SFT
model and the reference is its base, the rewards are not 0 at the first step (the loss is not ln 2), and the policy is
pulled away from what the SFT taught.

## Example
```python
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("runs/sft/checkpoint-1860")
ref_model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
trainer = DPOTrainer(model, ref_model, args=DPOConfig(output_dir="runs/dpo"), train_dataset=pairs)
trainer.train()
```

## Use instead
```python
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("runs/sft/checkpoint-1860")
trainer = DPOTrainer(model, None, args=DPOConfig(output_dir="runs/dpo"), train_dataset=pairs)
trainer.train()
```

## Fix safety
There is no automatic fix. It is not a fault if both names have the same weights (a hub copy of a local folder), or if
the policy continues a preference run whose first model is the reference. With the fix, the loss starts at ln 2.

## References
- Rafailov et al. 2023, arXiv 2305.18290, section 4: the reference is the SFT model; huggingface/trl#1193
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.compare_reference_model_with_policy import (
    LOG_SIGMOIDS,
    POLICY_TRAINERS,
    PREFERENCE_TRAINERS,
    references_of_other_models,
)


class ReferenceIsAnotherModel(SourceRule):
    code = "SRC362"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    looks_at = places_of_calls(
        "trainers and losses with a reference",
        *PREFERENCE_TRAINERS,
        *POLICY_TRAINERS,
        *LOG_SIGMOIDS,
    )

    def findings(self) -> Iterator[Finding]:
        for other_reference in references_of_other_models(self.subject):
            yield self.finding(
                f"the reference is loaded from {other_reference.reference_name}, but the policy from"
                f" {other_reference.policy_name}: the"
                " rewards are not 0 at the start, and the policy is pulled towards the other model",
                f"load the reference from {other_reference.policy_name} too, or leave ref_model out: the trainer"
                " then uses the initial policy",
                cases=[
                    case_of_node(self.subject, other_reference.reference.node),
                    case_of_node(other_reference.policy.home, other_reference.policy.node),
                ],
            )
