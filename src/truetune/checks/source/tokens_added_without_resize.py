"""Tokens are added to the tokenizer, and the model's embedding is not resized.

## What it does
Looks for `add_special_tokens` or `add_tokens` on a tokenizer in a file that loads a model and never calls
`resize_token_embeddings`.

## Why it is bad
A token that the vocabulary does not hold gets an id behind the last row of the embedding: an index error or a CUDA
assert, and only in a batch that pads.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
tokenizer.add_special_tokens({"pad_token": "[PAD]"})
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
tokenizer.add_special_tokens({"pad_token": "[PAD]"})
model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
```

## Fix safety
Where the token is in the vocabulary already (`<|finetune_right_pad_id|>`), nothing is added and no resize is needed:
then set `tokenizer.pad_token` instead, which says so.

## References
- meta-llama/llama-cookbook#189, meta-llama/llama3#310, huggingface/transformers#23401, lm-sys/FastChat#3266
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.families import vocabulary
from truetune.checks.source.places import at

RESERVED = ("<|", "<unk>", "<pad>", "</s>", "<eos>")
"""What tokens look like that a vocabulary holds already"""


PPO = ("trl.*PPOTrainer", "trl.*RLOOTrainer")
"""They put the id 0 where the mask is 0, before any model sees the pad"""


class TokensAddedWithoutResize(SourceRule):
    code = "TT740"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if "resize_token_embeddings" in module.text or not any(
            "model" in module.flow.kinds(call.node) for call in module.all_calls
        ):
            return
        if any(call.named(*PPO) for call in module.all_calls):
            return
        for call in module.methods("add_special_tokens", "add_tokens"):
            given = call.argument(0, "special_tokens_dict" if call.method == "add_special_tokens" else "new_tokens")
            value = module.flow.value(given)
            names = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            has = vocabulary(module, call.receiver)
            new = [
                name for name in names if isinstance(name, str) and not name.startswith(RESERVED) and name not in has
            ]
            if new and call.receiver is not None and "tokenizer" in module.flow.kinds(call.receiver):
                yield self.finding(
                    f"{', '.join(new)} is added to the tokenizer, and the embedding is not resized",
                    "call model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64), or take a token that "
                    "the vocabulary has",
                    cases=[at(module, call.node)],
                )
