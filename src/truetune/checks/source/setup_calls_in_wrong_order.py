"""Calls that set up a training are in an order in which one undoes, or misses, the other.

## What it does
Tracks models, tokenizers, samplers and trainers through the script, its functions and the files that it imports, and
reports two calls in the wrong order: an embedding that is resized before the tokens are added, rope settings that
change after the model was loaded, rows that are tokenized before the tokenizer is complete, a sampler that accelerate
splits again. All states and orders: docs/training-code-protocol.md. It does not fire if a branch, or a function that is
not in the files, may change the order.

## Why it is bad
Each call works by itself, and the run finishes. But the earlier call missed what the later one did: adapters stay
frozen, new tokens have no embedding row or are in no training row, the model keeps positions for another length.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
model.resize_token_embeddings(len(tokenizer))
tokenizer.add_tokens(["<call>", "</call>"])
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
tokenizer.add_tokens(["<call>", "</call>"])
model.resize_token_embeddings(len(tokenizer))
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
```

## Fix safety
There is no automatic fix: you decide which of the two calls to move.

## References
- huggingface/accelerate#3520, lm-sys/FastChat#2124
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from truetune.checks.faults import Fault
from truetune.checks.source.evidence.training_protocol.base_of_protocol_rules import (
    ProtocolRule,
    calls_of_protocols,
)
from truetune.checks.source.evidence.training_protocol.protocols_of_setups import (
    PROTOCOLS_OF_SETUPS,
)


class SetupCallsInWrongOrder(ProtocolRule):
    code = "SRC440"
    fault = Fault.TRAINING_CALLS_IN_WRONG_ORDER
    symptoms = ("nothing-is-learned", "several-gpus", "garbage-output")
    severity = "error"
    protocols = PROTOCOLS_OF_SETUPS
    looks_at = calls_of_protocols("calls that set up a training", PROTOCOLS_OF_SETUPS)
