"""A classifier's pad token is not the tokenizer's, so it classifies from the hidden state of a pad.

## What it does
Looks at scripts that load one `*ForSequenceClassification`. It compares the value of `model.config.pad_token_id` (or
`pad_token_id=`) with the tokenizer's pad token: it fires if they are different tokens, or an id that the model's family
does not use. Not reported: left padding, where the last token is at the end anyway, and encoders (BERT), which read
their first token.

## Why it is bad
A decoder's classifier reads the hidden state of the last token that is not `config.pad_token_id`. If the batch is
padded with another token, that is a pad at the end of the row, so all short rows look alike. With batch size 1 nothing
is padded and the model learns; with batch size 8 it does not.

## Example
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForSequenceClassification.from_pretrained("meta-llama/Llama-3.2-1B", num_labels=4)
model.config.pad_token_id = tokenizer.eos_token_id
```

## Use instead
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForSequenceClassification.from_pretrained("meta-llama/Llama-3.2-1B", num_labels=4)
model.config.pad_token_id = tokenizer.pad_token_id
```

## Fix safety
Safe: both then use the same token. A classifier that was trained with the wrong one has to be trained again.

## References
- `LlamaForSequenceClassification.forward` of transformers: the last place where `input_ids != pad_token_id`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    normalized_model_name,
)
from truetune.source.parsed_source_file import Module

CLASSIFIERS = ("transformers.*ForSequenceClassification.from_pretrained",)
EOS_IDS: tuple[tuple[str, frozenset[int]], ...] = (
    (r"(?:meta-)?llama-3", frozenset((128001, 128008, 128009))),
    (r"(?:meta-)?llama-2|tinyllama|codellama|mistral|mixtral|zephyr", frozenset((2,))),
    (r"qwen(?:1-5|2|2-5)-|qwen3-(?![56])", frozenset((151643, 151645))),
    (r"gemma-[123]", frozenset((1, 106, 107))),
    (r"gpt2|distilgpt2", frozenset((50256,))),
)
"""Family of a model's name -> the ids that its EOS token has, in base and instruct models"""
EOS_TEXTS = frozenset(
    ("</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<eos>", "<|end|>")
)
"""Texts that may be the EOS token itself"""
SPECIAL = re.compile(r"(?P<name>eos|bos|unk|pad|sep|cls)_token(?:_id)?")
ENCODER = re.compile(r"bert|electra|xlm-r", re.IGNORECASE)
"""In the name or class of an encoder, also RoBERTa, DeBERTa, ModernBERT: its classifier reads the first token"""
LEFT = re.compile(r"padding_side\s*=\s*[\"']left")


class PadValue(NamedTuple):
    """What a pad is set to: a special token by its name (`eos`), a text, or an id."""

    kind: str
    value: str | int
    node: ast.AST


class ClassifierPadsWithAnotherToken(SourceRule):
    code = "SRC294"
    fault = Fault.PAD_TOKEN_MISSING_OR_DIFFERENT
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = places_of_calls("classifiers that are loaded", *CLASSIFIERS)

    def findings(self) -> Iterator[Finding]:
        """Findings on classifiers that look for another pad than the tokenizer writes."""
        module = self.subject
        loads = list(module.calls(*CLASSIFIERS))
        if len(loads) != 1 or LEFT.search(module.text):
            return
        pad_token_id_argument = loads[0].keywords.get("pad_token_id")
        of_model = (
            [_pad_value_of(module, pad_token_id_argument)]
            if pad_token_id_argument is not None
            else []
        )
        of_model += [_pad_value_of(module, node) for node in _pad_settings_of_model(module)]
        of_tokenizer = [_pad_value_of(module, node) for node in _pad_settings_of_tokenizer(module)]
        if len(of_model) != 1 or len(of_tokenizer) != 1:
            return
        model, tokenizer = of_model[0], of_tokenizer[0]
        name = module.flow.value(loads[0].argument(0, "pretrained_model_name_or_path"))
        if model is None or tokenizer is None or not _are_different_tokens(model, tokenizer, name):
            return
        if ENCODER.search(f"{name} {' '.join(loads[0].names)}"):
            return
        yield self.finding(
            f"the tokenizer pads with {_pad_in_words(tokenizer)}, but the classifier skips"
            f" {_pad_in_words(model)}: in a padded batch it classifies short rows from a pad token",
            "set model.config.pad_token_id = tokenizer.pad_token_id, after the tokenizer's pad token is set",
            cases=[case_of_node(module, model.node), case_of_node(module, tokenizer.node)],
        )


def _pad_settings_of_model(module: Module) -> Iterator[ast.expr]:
    """What `model.config.pad_token_id` is set to."""
    for node in module.nodes(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "pad_token_id":
                if _is_model_config(target.value):
                    yield node.value


def _pad_settings_of_tokenizer(module: Module) -> Iterator[ast.expr]:
    """What a tokenizer's pad is set to: by its attribute, as a special token, or where it is loaded."""
    for node in module.nodes(ast.Assign):
        for target in node.targets:
            is_pad = isinstance(target, ast.Attribute) and target.attr in (
                "pad_token",
                "pad_token_id",
            )
            if is_pad and isinstance(target, ast.Attribute) and not _is_model_config(target.value):
                yield node.value
    for call in module.methods("add_special_tokens"):
        entries = module.flow.dict_entries_and_if_complete(call.args[0])[0] if call.args else {}
        if "pad_token" in entries:
            yield entries["pad_token"]
    for call in module.calls("transformers.*Tokenizer*.from_pretrained"):
        if "pad_token" in call.keywords:
            yield call.keywords["pad_token"]


def _is_model_config(node: ast.expr) -> bool:
    """Is it a model's config?"""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return "config" in str(name)


def _pad_value_of(module: Module, node: ast.expr) -> PadValue | None:
    """What an expression sets a pad to; None where it is not known."""
    if isinstance(node, ast.Attribute):
        named = SPECIAL.fullmatch(node.attr)
        if named is not None:
            return PadValue("named", named["name"], node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr != "convert_tokens_to_ids" or not node.args:
            return None
        return _pad_value_of(module, node.args[0])
    value = module.flow.value(node)
    texts = possible_texts(module, node)
    # A field of a dataclass or an option: its default, where that is the only text.
    if len(texts) == 1:
        return PadValue("text", texts[0], node)
    is_id = isinstance(value, int) and not isinstance(value, bool)
    return PadValue("id", value, node) if is_id else None


def _are_different_tokens(model: PadValue, tokenizer: PadValue, name: object) -> bool:
    """Are two pads surely different tokens?"""
    if model.kind == tokenizer.kind:
        # `config.pad_token_id = tokenizer.pad_token_id` is the tokenizer's own, whatever that was set to.
        return model.value != tokenizer.value and model.value != "pad" and tokenizer.value != "pad"
    pads = {model.kind: model.value, tokenizer.kind: tokenizer.value}
    if pads.get("named") != "eos":
        return False
    if "text" in pads:
        return pads["text"] not in EOS_TEXTS
    ids = _eos_ids_of_model_family(name)
    return bool(ids) and pads["id"] not in ids


def _eos_ids_of_model_family(name: object) -> frozenset[int]:
    """The ids that EOS has in the family of a model; empty where that is not known."""
    if not isinstance(name, str):
        return frozenset()
    plain = normalized_model_name(name)
    return next((ids for family, ids in EOS_IDS if re.match(family, plain)), frozenset())


def _pad_in_words(pad: PadValue) -> str:
    """A pad in a sentence."""
    if pad.kind == "id":
        return f"the id {pad.value}"
    return f"{str(pad.value).upper()}" if pad.kind == "named" else str(pad.value)
