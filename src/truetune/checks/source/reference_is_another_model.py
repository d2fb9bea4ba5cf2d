"""The reference of a preference training is loaded from another place than the policy.

## What it does
Follows `model` and `ref_model` of TRL's trainers (DPO, KTO, BCO, PPO), and the models of the two passes in a preference
loss of one's own, back to the calls that load them, and compares the names. Silent where a name is known only at run
time, and where an adapter or other weights are put into one of both: then the names do not say which model it is.

## Why it is bad
The reference is what the policy is held near to, and what its rewards are measured from. Where the policy is an SFT
model and the reference its base, the rewards are not 0 at the first step (the loss is not ln 2), and the pull is away
from what the SFT taught.

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
There is no automatic fix. It is no fault where both names hold the same weights (a copy on the hub of a local folder),
or where the policy continues a preference run whose first model is the reference.

## References
- Rafailov et al. 2023, arXiv 2305.18290, section 4: the reference is the SFT model; huggingface/trl#1193
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
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
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    looks_at = places_of_calls(
        "trainers and losses with a reference",
        *PREFERENCE_TRAINERS,
        *POLICY_TRAINERS,
        *LOG_SIGMOIDS,
    )

    def findings(self) -> Iterator[Finding]:
        for found in references_of_other_models(self.subject):
            yield self.finding(
                f"the reference is loaded from {found.reference_name}, and the policy from {found.policy_name}: the"
                " rewards are not 0 at the start, and the policy is pulled back to the reference",
                f"load the reference from {found.policy_name} too, or give no ref_model: the trainer then takes the"
                " policy as it starts",
                cases=[
                    case_of_node(self.subject, found.reference.node),
                    case_of_node(found.policy.home, found.policy.node),
                ],
            )
