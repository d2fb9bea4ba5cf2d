"""Rendered chats are given to TRL as texts, and the tokenizer puts a second BOS in front.

## What it does
Looks for `SFTTrainer` over rows whose text is made by `apply_chat_template(..., tokenize=False)`, for models that are
known to write BOS in the template and to add it when they encode (Llama 3, Gemma, Mistral). It is silent where the
script takes BOS off the text (`removeprefix`, `bos_token`) or asks for no special tokens.

## Why it is bad
TRL encodes a text column with special tokens: each example begins with two BOS. The model is served with one, so it is
trained on a beginning that never comes, and answers get a little worse for no reason that a curve shows.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
rows = load_dataset("json", data_files="chats.jsonl", split="train")
rows = rows.map(lambda row: {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)})
trainer = SFTTrainer("meta-llama/Llama-3.1-8B-Instruct", args=SFTConfig("out", max_length=2048), train_dataset=rows)
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
trainer = SFTTrainer("meta-llama/Llama-3.1-8B-Instruct", args=SFTConfig("out", max_length=2048), train_dataset=rows)
```

## Fix safety
Rows of messages are rendered by TRL itself, with one BOS. Where the text is needed, `text.removeprefix(
tokenizer.bos_token)` keeps all else.

## References
- huggingface/trl#1400, huggingface/trl#3318
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_families_of_tokenizer,
)
from truetune.source.parsed_source_file import Module
from truetune.source.resolved_calls import Call

TAKES_BOS_OFF = (
    "bos_token",
    "removeprefix",
    "lstrip",
    "add_special_tokens",
    "<|begin_of_text|>",
    "<bos>",
)
"""Code that knows of BOS, or encodes without it"""
DEFAULT_TEXT_FIELD = "text"


def _sft_trainers(module: Module) -> Iterator[Call]:
    yield from module.calls("trl.SFTTrainer", "trl.trainer.sft_trainer.SFTTrainer")


def _renderings(module: Module) -> Iterator[Call]:
    """The calls that render a chat as a text."""
    for call in module.methods("apply_chat_template"):
        if module.flow.value(call.keywords.get("tokenize")) is False:
            yield call


def _text_fields(module: Module) -> set[str]:
    """The columns that the script's trainers may read as text."""
    fields = {DEFAULT_TEXT_FIELD}
    for call in module.all_calls:
        value = module.flow.value(call.keywords.get("dataset_text_field"))
        if isinstance(value, str):
            fields.add(value)
    return fields


def _columns_of_rendered_text(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Each rendering with the entry of a row, `{"text": ...}`, that holds it."""
    fields = _text_fields(module)
    renderings = {id(call.node): call for call in _renderings(module)}
    for node in module.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or key.value not in fields:
                continue
            made_of = (renderings.get(id(part)) for part in backward_slice(module, value))
            found = next((call for call in made_of if call is not None), None)
            if found is not None:
                yield found, value


class RenderedTextGetsSecondBos(SourceRule):
    code = "SRC427"
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("SFTTrainers of TRL", _sft_trainers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        trainer = next(_sft_trainers(module), None)
        if trainer is None or module.mentions(*TAKES_BOS_OFF):
            return
        for rendering, column in _columns_of_rendered_text(module):
            families = likely_families_of_tokenizer(module, rendering.receiver)
            known = [one for one in families if one is not None]
            if not known or len(known) < len(families):
                continue
            if not all(one.adds_bos and one.template_writes_bos for one in known):
                continue
            yield self.finding(
                "the text begins with BOS, which the template writes, and SFTTrainer encodes it with special tokens:"
                " every example begins with two BOS",
                "give SFTTrainer the messages, which it renders itself; or take BOS off:"
                " text.removeprefix(tokenizer.bos_token)",
                cases=[case_of_node(module, column), case_of_node(module, trainer.node)],
            )
