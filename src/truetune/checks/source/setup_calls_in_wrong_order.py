"""Calls that set up a training are in an order in which one of them undoes, or misses, the other.

## What it does
Follows models, tokenizers, samplers and trainers through the script, its functions and the files that it imports, and
names two calls whose order is broken: an adapter before `prepare_model_for_kbit_training`, an embedding that is resized
before the tokens are added, rope settings that change after the model was loaded, rows that are encoded before the
tokenizer is complete, a sampler that accelerate divides again. All states and orders: docs/training-code-protocol.md.
It says nothing where a branch, or a function that is not among the files, may change the order.

## Why it is bad
Each call works by itself, and the run goes through. What the later call should have seen is not there: adapters stay
frozen, new tokens have no row or are in no row, the model keeps positions of another length.

## Example
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer

model = AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))
model = prepare_model_for_kbit_training(model)
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer

model = AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Fix safety
There is no automatic fix: which of the two calls moves is for the author to say.

## References
- huggingface/trl#3926, huggingface/accelerate#3520, lm-sys/FastChat#2124
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from truetune.checks.source.evidence.training_protocol.protocol_rule import (
    ProtocolRule,
    calls_of_protocols,
)
from truetune.checks.source.evidence.training_protocol.protocols_of_setups import (
    PROTOCOLS_OF_SETUPS,
)


class SetupCallsInWrongOrder(ProtocolRule):
    code = "SRC440"
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "error"
    protocols = PROTOCOLS_OF_SETUPS
    looks_at = calls_of_protocols("calls that set up a training", PROTOCOLS_OF_SETUPS)
