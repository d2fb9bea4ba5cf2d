"""Rendered chats are passed to TRL as text, and the tokenizer adds a second BOS.

## What it does
Looks for `SFTTrainer` over rows whose text is made by `apply_chat_template(..., tokenize=False)`, for models that are
known to write BOS in the template and to add it when they encode (Llama 3, Gemma, Mistral). It does not fire if the
script removes BOS from the text (`removeprefix`, `bos_token`), adds no special tokens, sets its own template, or trains
with Unsloth, which checks for a second BOS itself. From TRL 0.19 on it also does not fire if the column of messages is
still in the rows: the trainer renders that one, and ignores the text.

## Why it is bad
TRL encodes a text column with special tokens, so each example begins with two BOS tokens. The model is served with one:
it was trained on a beginning that never occurs, and answers get a little worse without a sign in the curves.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
rows = load_dataset("json", data_files="chats.jsonl", split="train")


def to_text(row):
    return {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)}


rows = rows.map(to_text, remove_columns=["messages"])
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
TRL renders rows of messages itself, with one BOS. If you need the text column, `text.removeprefix(tokenizer.bos_token)`
removes only the BOS. The model must be trained again.

## References
- huggingface/trl#1400, huggingface/trl#3318
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    with_called_functions,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_families_of_tokenizer,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TAKES_BOS_OFF = (
    "bos_token",
    "removeprefix",
    "lstrip",
    "add_special_tokens",
    "<|begin_of_text|>",
    "<bos>",
    "skip_prepare_dataset",
)
"""Code that knows of BOS, or encodes without it"""
DEFAULT_TEXT_FIELD = "text"
CHAT_COLUMNS = frozenset(("messages", "prompt", "completion", "chosen", "rejected"))
"""Columns that TRL renders itself where they hold messages"""
RENDERS_CHAT_COLUMNS = "0.19"
"""The first release of TRL that renders them though the rows have a text: read from its `SFTTrainer`s"""
DROP_COLUMNS = ("remove_columns", "select_columns")
MAKES_TOKENS = "input_ids"
"""A column that TRL trains on as it is"""


def _sft_trainers(module: Module) -> Iterator[Call]:
    yield from module.calls("trl.SFTTrainer", "trl.trainer.sft_trainer.SFTTrainer")


def _renderings(module: Module) -> Iterator[Call]:
    """The calls that render a chat as a text."""
    for call in module.methods("apply_chat_template"):
        if module.flow.value(call.keywords.get("tokenize")) is False:
            yield call


def _columns_trainers_may_read_as_text(module: Module) -> set[str]:
    """The columns that the script's trainers may read as text."""
    fields = {DEFAULT_TEXT_FIELD}
    for call in module.all_calls:
        value = module.flow.value(call.keywords.get("dataset_text_field"))
        if isinstance(value, str):
            fields.add(value)
    return fields


def _sets_other_chat_template(module: Module) -> bool:
    """Does the script give a tokenizer, or a rendering, another template than the published one?"""
    stores = (node for node in module.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(node.attr == "chat_template" for node in stores) or any(
        "chat_template" in call.keywords for call in _renderings(module)
    )


@dataclass(frozen=True, slots=True)
class _TrainedRows:
    """The rows that a trainer is given, by the code that makes them."""

    code: tuple[ast.AST, ...]
    """What they are computed from, with the functions of the script that take part"""
    keep_columns: bool
    """Do they keep the columns of the rows that they are made of?"""


def _trained_rows(module: Module, trainer: Call) -> _TrainedRows | None:
    """The rows that a trainer is given; None where nothing says where they are made."""
    rows = trainer.argument(3, "train_dataset")
    if rows is None:
        return None
    computed_from = list(backward_slice(module, rows))
    calls = [module.flow.call(node) for node in computed_from if isinstance(node, ast.Call)]
    if not any(call.names for call in calls):
        return None
    are_mapped = any(call.method == "map" for call in calls)
    return _TrainedRows(
        (*computed_from, *_code_run_by_calls(module, calls)),
        keep_columns=are_mapped and not any(map(_drops_columns, calls)),
    )


def _code_run_by_calls(module: Module, calls: Sequence[Call]) -> Iterator[ast.AST]:
    """The code of the functions that calls run, and of those that they map over rows."""
    called = [call.node.func for call in calls]
    mapped = [call.argument(0, "function") for call in calls if call.method == "map"]
    functions = [
        module.flow.function_that_expression_names(one)
        for one in (*called, *mapped)
        if one is not None
    ]
    known = [function for function in functions if function is not None]
    for function in with_called_functions(module, known):
        yield from ast.walk(function)


def _drops_columns(call: Call) -> bool:
    """Does a call leave columns of the rows out?"""
    return call.method in DROP_COLUMNS or "remove_columns" in call.keywords


def _renderings_and_row_entries(
    module: Module, code: Iterable[ast.AST]
) -> Iterator[tuple[Call, ast.expr]]:
    """Each rendering with the entry of a row, `{"text": ...}`, that holds it."""
    fields = _columns_trainers_may_read_as_text(module)
    renderings = {id(call.node): call for call in _renderings(module)}
    for node in code:
        if not isinstance(node, ast.Dict) or _does_row_hold_tokens(node):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in fields:
                rendering = _uncut_rendering_in_text(backward_slice(module, value), renderings)
                if rendering is not None:
                    yield rendering, value


def _uncut_rendering_in_text(
    made_of: Iterable[ast.AST], renderings: Mapping[int, Call]
) -> Call | None:
    """The rendering among the nodes that a text is made of; None where there is none, or it is cut."""
    nodes = list(made_of)
    # A text that is cut may begin behind its BOS.
    if any(isinstance(node, ast.Slice) for node in nodes):
        return None
    return next((renderings[id(node)] for node in nodes if id(node) in renderings), None)


def _does_row_hold_tokens(row: ast.Dict) -> bool:
    """Does a row hold its tokens too?"""
    return any(isinstance(key, ast.Constant) and key.value == MAKES_TOKENS for key in row.keys)


def _reads_chat_column(module: Module, rendering: Call) -> bool:
    """Are the messages that are rendered those of a column which TRL renders itself?"""
    chat = rendering.argument(0, "conversation")
    read = () if chat is None else backward_slice(module, chat)
    keys = (one.slice for one in read if isinstance(one, ast.Subscript))
    return any(isinstance(key, ast.Constant) and key.value in CHAT_COLUMNS for key in keys)


def _texts_with_two_bos(module: Module, trainer: Call) -> Iterator[ast.expr]:
    """The entries of a trainer's rows that it puts a second BOS in front of."""
    rows = _trained_rows(module, trainer)
    keeps_columns = rows is not None and rows.keep_columns
    renders_itself = keeps_columns and not module.pins.is_release_surely_before(
        "trl", RENDERS_CHAT_COLUMNS
    )
    code = module.nodes(ast.Dict) if rows is None else rows.code
    for rendering, column in _renderings_and_row_entries(module, code):
        if renders_itself and _reads_chat_column(module, rendering):
            continue
        if _is_known_to_write_bos_twice(module, rendering):
            yield column


def _is_known_to_write_bos_twice(module: Module, rendering: Call) -> bool:
    """Do the template and the tokenizer of a rendering both write BOS, whichever model it is?"""
    families = likely_families_of_tokenizer(module, rendering.receiver)
    known = [one for one in families if one is not None]
    if not known or len(known) < len(families):
        return False
    return all(one.adds_bos and one.template_writes_bos for one in known)


class RenderedTextGetsSecondBos(SourceRule):
    code = "SRC427"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("SFTTrainers of TRL", _sft_trainers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if (
            module.this_or_linked_file_imports_unsloth
            or module.mentions(*TAKES_BOS_OFF)
            or _sets_other_chat_template(module)
        ):
            return
        for trainer in _sft_trainers(module):
            for column in _texts_with_two_bos(module, trainer):
                yield self.finding(
                    "the chat template writes BOS into the text, and SFTTrainer adds another when it encodes the text:"
                    " every example begins with two BOS tokens",
                    "pass the messages to SFTTrainer, which renders them itself, or remove BOS from the text:"
                    " text.removeprefix(tokenizer.bos_token)",
                    cases=[case_of_node(module, column), case_of_node(module, trainer.node)],
                )
