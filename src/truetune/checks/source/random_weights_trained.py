"""A fine-tuning run trains a model whose weights are random.

## What it does
Traces the model of a trainer, or of an optimizer in a hand-written loop, back to the call that created it. It fires if
that call builds a model only from a pretrained model's config (`AutoModelForCausalLM.from_config(config)`,
`LlamaForCausalLM(config)`), nothing loads weights after it, and the run is a fine-tuning: it puts an adapter on the
model, uses a TRL trainer, the config is that of a chat model, or the rows contain questions and answers. It does not
report an intended training from scratch: custom sizes, a custom tokenizer, or a script that says so.

## Why it is bad
A config contains the sizes of a model but no weights. The run ends without a warning, and its loss falls: from random
guessing to a model that only knows the most common words. An adapter on random weights learns even less. The answers
are noise.

## Example
```python
from datasets import load_dataset
from transformers import AutoConfig, AutoModelForCausalLM
from trl import SFTTrainer

config = AutoConfig.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct")
model = AutoModelForCausalLM.from_config(config)
trainer = SFTTrainer(model=model, train_dataset=load_dataset("me/chats", split="train"))
trainer.train()
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct")
trainer = SFTTrainer(model=model, train_dataset=load_dataset("me/chats", split="train"))
trainer.train()
```

## Fix safety
There is no automatic fix: `from_config` and `from_pretrained` take different arguments. The model must be trained
again.

## References
- transformers documentation, `AutoModel.from_config`: "Loading a model from its configuration file does not load the
  model weights. It only affects the model's configuration."
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.random_weights_fine_tuned import (
    RANDOM_MODELS,
    fine_tuned_models_with_random_weights,
)


class RandomWeightsTrained(SourceRule):
    code = "SRC150"
    fault = Fault.WEIGHTS_ARE_RANDOM
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    looks_at = places_of_calls("models that are made of a config", *RANDOM_MODELS)

    def findings(self) -> Iterator[Finding]:
        for random_weights in fine_tuned_models_with_random_weights(self.subject):
            made = random_weights.construction.names[0].rpartition(".")[2]
            source = f" of {random_weights.source}" if random_weights.source else ""
            name = f'"{random_weights.source}"' if random_weights.source else "..."
            yield self.finding(
                f"the model is created only from the config{source}: training starts with random weights, not with"
                " the pretrained ones",
                f"remove {made}, and load the weights with from_pretrained({name})",
                evidence=[f"it is a fine-tuning: {random_weights.sign}"],
                cases=[case_of_node(self.subject, random_weights.construction.node)],
            )
