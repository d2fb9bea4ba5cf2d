"""A distillation on sampled answers learns other tokens than were sampled: the prompt, padding, or no stop token.

## What it does
Has the trainer sample one short batch, as its `training_step` does, and compares the sampled tokens with those in the
labels that its loss is given.

## Why it is bad
With prompts in the loss most of the training is on questions. Without the stop token the student does not learn to end;
with what follows it, it learns to continue. The batches of the data loader show nothing of it: their labels are
replaced.

## Example

```python
import trl.experimental.gkd as gkd


class MyTrainer(gkd.GKDTrainer):
    @staticmethod
    def generate_on_policy_outputs(model, inputs, generation_config):
        ids = model.generate(input_ids=inputs["prompts"], attention_mask=inputs["prompt_attention_mask"],
                             generation_config=generation_config)
        mask = (ids != generation_config.pad_token_id).long()
        return ids, mask, ids.masked_fill(mask == 0, -100)


torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = MyTrainer(model, teacher, args=arguments(gkd.GKDConfig, max_new_tokens=8), processing_class=tokenizer,
                train_dataset=datasets.Dataset.from_list(chats()))
```

## Use instead

```python
import trl.experimental.gkd as gkd

torch.manual_seed(1)  # weights of its own
teacher = transformers.LlamaForCausalLM(model.config)
run = gkd.GKDTrainer(model, teacher, args=arguments(gkd.GKDConfig, max_new_tokens=8), processing_class=tokenizer,
                     train_dataset=datasets.Dataset.from_list(chats()))
```

## Fix safety
There is no automatic fix.

## References

- huggingface/trl#6006
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class DistilledTokensAreNotTheSampled(LawRule):
    code = "LAW036"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    law = "distilled-samples"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that other tokens than the sampled ones are learned."""
        yield self.finding(
            f"{evidence['other rows']} of {evidence['rows']} sampled answers have other tokens in the loss than were"
            " sampled",
            "set the labels to -100 for the prompt and for what follows the first stop token, and to the sampled ids"
            " elsewhere",
            evidence=[
                f"{evidence['tokens']} tokens were sampled",
                f"{evidence['prompt']} prompt tokens or padding before them are in the loss",
                f"{max(0, evidence['beyond'])} further tokens are in the loss,"
                f" {evidence['left out']} sampled ones are not",
            ],
            count=evidence["other rows"],
            total=evidence["rows"],
        )
