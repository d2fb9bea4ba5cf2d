"""Tokens are added, and an adapter leaves their embedding rows frozen.

## What it does
Looks for `add_tokens` or `add_special_tokens` with new tokens beside a `LoraConfig` that names neither
`modules_to_save` nor `trainable_token_indices`, nor the embedding among its targets. The tokens are new where the model
is known not to have them (by its files or its name), or where the file resizes the embedding for them; else it is a
note. In a branch for models of one name (`if "gemma" in name`) nothing is said.

## Why it is bad
LoRA leaves `embed_tokens` and `lm_head` alone: the rows of the new tokens stay as random as they began, and are not in
the saved adapter. The model never writes the new tokens.

## Example
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.add_tokens(["<call>", "</call>"])
config = LoraConfig(r=16, target_modules=["q_proj", "v_proj"])
```

## Use instead
```python
from peft import LoraConfig
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
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

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.new_tokens import TOKENS_ADDED, added_tokens
from truetune.checks.source.places import at
from truetune.source.calls import Call
from truetune.source.module import Module

TRAINED = ("modules_to_save", "trainable_token_indices")
EMBEDDINGS = ("embed_tokens", "lm_head", "wte")


def _configs_beside_tokens(module: Module) -> Iterator[Call]:
    """The LoRA configs of a file that adds tokens."""
    if TOKENS_ADDED.count(module):
        yield from module.calls("peft.LoraConfig")


class AddedTokensLeftFrozen(SourceRule):
    code = "TT747"
    severity = "error"
    looks_at = CodePlaces("LoRA configs beside added tokens", _configs_beside_tokens)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        new = added_tokens(module, without_pad=True)
        proved = [added for added in new if added.model_known]
        resized = module.mentions("resize_token_embeddings")
        for call in module.calls("peft.LoraConfig") if new else ():
            targets = module.flow.value(call.keywords.get("target_modules"))
            reached = isinstance(targets, list) and not set(targets).isdisjoint(EMBEDDINGS)
            if all(call.lacks(name) for name in TRAINED) and not reached:
                certain = bool(proved) or resized
                yield self.finding(
                    "tokens are added, and the adapter leaves their embedding rows frozen and"
                    " unsaved" + ("" if certain else ", unless the model has these tokens already"),
                    "give LoraConfig trainable_token_indices (or modules_to_save) for them",
                    severity=self.severity if certain else "info",
                    cases=[at(module, call.node), at(module, (proved or new)[0].call.node)],
                )
