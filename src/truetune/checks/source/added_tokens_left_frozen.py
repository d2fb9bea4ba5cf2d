"""Tokens are added, and an adapter leaves their embedding rows frozen.

## What it does
Looks for `add_tokens` or `add_special_tokens` with new tokens beside a `LoraConfig` that names neither
`modules_to_save` nor `trainable_token_indices`, nor the embedding among its targets.

## Why it is bad
LoRA leaves `embed_tokens` and `lm_head` alone: the rows of the new tokens stay as random as they began, and are not in
the saved adapter. The model never writes the new tokens.

## Example
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
tokenizer.add_tokens(["<call>", "</call>"])
config = LoraConfig(r=16, target_modules=["q_proj", "v_proj"])
```

## Use instead
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
tokenizer.add_tokens(["<call>", "</call>"])
config = LoraConfig(
    r=16,
    target_modules=["q_proj", "v_proj"],
    trainable_token_indices={"embed_tokens": tokenizer.convert_tokens_to_ids(["<call>", "</call>"])},
)
```

## Fix safety
`modules_to_save=["embed_tokens", "lm_head"]` trains and saves both matrices whole: more memory, a larger file.

## References
- artidoro/qlora#214, huggingface/peft#334, huggingface/peft#1300, axolotl-ai-cloud/axolotl#1570
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.families import vocabulary
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

TRAINED = ("modules_to_save", "trainable_token_indices")
EMBEDDINGS = ("embed_tokens", "lm_head", "wte")


class AddedTokensLeftFrozen(SourceRule):
    code = "TT747"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        added = [
            call
            for call in module.methods("add_tokens", "add_special_tokens")
            if call.receiver is not None and "tokenizer" in module.flow.kinds(call.receiver)
        ]
        new = [call for call in added if _new_tokens(module, call)]
        for call in module.calls("peft.LoraConfig") if new else ():
            targets = module.flow.value(call.keywords.get("target_modules"))
            reached = isinstance(targets, list) and not set(targets).isdisjoint(EMBEDDINGS)
            if all(call.lacks(name) for name in TRAINED) and not reached:
                yield self.finding(
                    "tokens are added, and the adapter leaves their embedding rows frozen and unsaved",
                    "give LoraConfig trainable_token_indices (or modules_to_save) for them",
                    cases=[at(module, call.node), at(module, new[0].node)],
                )


def _new_tokens(module: Module, call: Call) -> bool:
    """Are there tokens besides the pad token, which no one has to write, that the named model does not have?"""
    value = module.flow.value(next(iter(call.args), None))
    by_role = value if isinstance(value, dict) else {"": value}
    parts = [item for role, item in by_role.items() if role != "pad_token"]
    names = [name for part in parts for name in (part if isinstance(part, (list, tuple, frozenset)) else [part])]
    has = vocabulary(module, call.receiver)
    return any(isinstance(name, str) and name not in has for name in names)
