"""A classifier reads its answer at a pad, for its config names another pad token than the tokenizer pads with.

## What it does
Follows the load of a sequence classifier to a folder on this machine, and the tokenizer to its folder. It compares
`pad_token_id` of config.json with the id of the tokenizer's pad token, for models that read the last token that is no
pad (Llama, Qwen, Mistral, Gemma and others without an encoder). It speaks where a script pads batches on the right and
neither side is set in code.

## Why it is bad
These models take the logits at the last token that is not `pad_token_id`. Where the tokenizer pads with another token,
the last pad is taken for the last word: every row of a batch but the longest is judged by a pad. With one row at a time
there are no pads, and the same model is right.

## Example
```python
# out/config.json: {"model_type": "llama", "pad_token_id": 128001}
# out/tokenizer_config.json: {"pad_token": "<|eot_id|>", "added_tokens_decoder": {"128009": {"content": "<|eot_id|>"}}}
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForSequenceClassification.from_pretrained("out")
logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
```

## Use instead
```python
# out/config.json: {"model_type": "llama", "pad_token_id": 128001}
# out/tokenizer_config.json: {"pad_token": "<|eot_id|>", "added_tokens_decoder": {"128009": {"content": "<|eot_id|>"}}}
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForSequenceClassification.from_pretrained("out")
model.config.pad_token_id = tokenizer.pad_token_id
logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
```

## Fix safety
Safe where the training padded with the tokenizer's token. A classifier that was trained with the wrong id has learned
to read pads: train it again.

## References
- huggingface/transformers, modeling_layers.py (GenericForSequenceClassification): last_non_pad_token
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import calls_of
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

CLASSIFIERS = ("transformers.*ForSequenceClassification.from_pretrained",)
TOKENIZERS = ("transformers.*Tokenizer*.from_pretrained",)
READS_LAST_TOKEN = frozenset(
    (
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "phi", "phi3",
        "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "falcon", "stablelm", "starcoder2", "olmo", "olmo2", "smollm3",
    )
)  # fmt: skip
"""Model types without an encoder, whose classifier takes the last token that is no pad"""
SET_IN_CODE = frozenset(("pad_token", "pad_token_id", "padding_side"))
"""Attributes, arguments and keys by which code sets the pad token, or the side of the pads, itself"""


class _Pads(NamedTuple):
    """The two ids of a folder's pad."""

    of_config: int
    of_tokenizer: int
    token: str
    config: Path


class ClassifierReadsAPad(SourceRule):
    code = "SRC278"
    symptoms = ("odd-metrics", "loss-does-not-fall")
    severity = "error"
    stability = "preview"
    looks_at = calls_of("sequence classifiers that are loaded", *CLASSIFIERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(map(_sets_pad, module.with_linked)) or not _pads(module):
            return
        for call in module.calls(*CLASSIFIERS):
            pads = _pads_of_folders(module, call)
            if pads is None or pads.of_config == pads.of_tokenizer:
                continue
            yield self.finding(
                f"the classifier looks for the last token that is not {pads.of_config}, and the tokenizer pads with"
                f" {pads.token} ({pads.of_tokenizer}): in a batch, all rows but the longest are judged by a pad",
                f"set model.config.pad_token_id = tokenizer.pad_token_id, and write {pads.of_tokenizer} into"
                f" {pads.config.name}",
                cases=[
                    Case(f'"pad_token_id": {pads.of_config}', file=str(pads.config)),
                    case_at(module, call.node),
                ],
            )


def _sets_pad(module: Module) -> bool:
    """Does code set the pad token or its side?"""
    if any(not SET_IN_CODE.isdisjoint(call.keywords) for call in module.all_calls):
        return True
    keys = (key for node in module.nodes(ast.Dict) for key in node.keys)
    if any(isinstance(key, ast.Constant) and key.value in SET_IN_CODE for key in keys):
        return True
    targets = (target for node in module.nodes(ast.Assign) for target in node.targets)
    return any(isinstance(one, ast.Attribute) and one.attr in SET_IN_CODE for one in targets)


def _pads(module: Module) -> bool:
    """Does a call pad rows, or a collator of a trainer?"""
    is_padded = any("padding" in call.keywords for call in module.all_calls)
    return is_padded or module.mentions("DataCollatorWithPadding", "Trainer(")


def _pads_of_folders(module: Module, call: Call) -> _Pads | None:
    """The ids of a classifier's folder and of the tokenizer's; None where one of them is not known."""
    folder = _folder_of(module, call)
    tokenizer = next((_folder_of(module, one) for one in module.calls(*TOKENIZERS)), None)
    if folder is None or tokenizer is None:
        return None
    config = read_folder_settings(folder / "config.json")
    of_config = config.get("pad_token_id")
    if type(of_config) is not int or config.get("model_type") not in READS_LAST_TOKEN:
        return None
    settings = read_folder_settings(tokenizer / "tokenizer_config.json")
    if settings.get("padding_side") == "left":
        return None
    token = settings.get("pad_token")
    # Older files hold the token as a table.
    content = token.get("content") if isinstance(token, dict) else token
    of_tokenizer = _id_of_token(settings.get("added_tokens_decoder"), content)
    if of_tokenizer is None:
        return None
    return _Pads(of_config, of_tokenizer, str(content), folder / "config.json")


def _folder_of(module: Module, call: Call) -> Path | None:
    """The folder that a call loads from, where its name is known."""
    name = module.flow.value(call.argument(0, "pretrained_model_name_or_path"))
    return Path(module.path).parent / name if isinstance(name, str) else None


def _id_of_token(added: object, content: object) -> int | None:
    """The id of a token among those that a tokenizer's settings list; None where it is not listed."""
    if not isinstance(added, dict) or not isinstance(content, str):
        return None
    for key, token in added.items():
        if isinstance(token, dict) and token.get("content") == content and str(key).isdecimal():
            return int(key)
    return None
