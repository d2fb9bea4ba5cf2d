"""`formatting_func` is given together with rows of messages, and TRL ignores it.

## What it does
It finds an `SFTTrainer` with a `formatting_func` whose rows have a `messages` column: the function reads that column,
or the data set in the file has it. It is info if the function renders the same template.

## Why it is bad
TRL trains on `messages` as rendered by the chat template. The function's text is dropped without a message.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer


def write(row):
    return "### Question: " + row["messages"][0]["content"] + " ### Answer: " + row["messages"][1]["content"]


SFTTrainer("some/model", train_dataset=load_dataset("some/chats", split="train"), formatting_func=write).train()
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer


def write(row):
    return {"text": "### Question: " + row["messages"][0]["content"] + " ### Answer: " + row["messages"][1]["content"]}


rows = load_dataset("some/chats", split="train")
SFTTrainer("some/model", train_dataset=rows.map(write, remove_columns=rows.column_names)).train()
```

## Fix safety
There is no automatic fix: only you know which of the two formats you want. The text above contains no special tokens of
the chat template, so the model has to be prompted in the same form later.

## References
- huggingface/trl#2915, huggingface/trl#3140, unslothai/unsloth#1802
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls_with_keywords
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


class FormattingFuncIgnored(SourceRule):
    code = "SRC011"
    fault = Fault.COLUMNS_MISSING_FROM_TRAINING_TEXT
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = places_of_calls_with_keywords(
        "SFTTrainers with formatting_func", ("formatting_func",), "trl.SFTTrainer"
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls("trl.SFTTrainer"):
            formatting_func_argument = call.keywords.get("formatting_func")
            if (
                formatting_func_argument is None
                or module.flow.value(formatting_func_argument) is None
            ):
                continue
            function = module.flow.function_that_expression_names(formatting_func_argument)
            seen = _read_of_messages(function) if function is not None else None
            if seen is None and (data := call.keywords.get("train_dataset")) is not None:
                seen = _origin_of_messages_column(module, data)
            if seen is None:
                continue
            same = function is not None and _only_renders_messages_by_template(module, function)
            yield self.finding(
                "formatting_func is ignored: the rows have a messages column, which TRL renders"
                " with the chat template instead",
                "to train on the function's text, map the rows to a text column and drop messages; to train on the chat"
                " template, leave formatting_func out",
                severity="info" if same else "error",
                evidence=(
                    ["the function renders the same template: the text is the same"] if same else []
                ),
                cases=[
                    case_of_node(
                        module,
                        formatting_func_argument,
                        "formatting_func=" + module.text_of(formatting_func_argument),
                    ),
                    case_of_node(module, seen),
                ],
            )


def _read_of_messages(function: ast.AST) -> ast.AST | None:
    """Where a function reads the column `messages` of its first parameter."""
    arguments = getattr(function, "args", None)
    names = (
        [a.arg for a in arguments.args if a.arg not in ("self", "cls")]
        if arguments is not None
        else []
    )
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and names[:1] == [node.value.id]
        ):
            if isinstance(node.slice, ast.Constant) and node.slice.value == "messages":
                return node
    return None


def _only_renders_messages_by_template(module: Module, function: ast.AST) -> bool:
    """Does the function do nothing but `return tokenizer.apply_chat_template(row["messages"], tokenize=False)`?"""
    returned = (
        [function.body]
        if isinstance(function, ast.Lambda)
        else module.flow.returned_expressions_by_function.get(function, [])
    )
    nodes = [origin.node for value in returned for origin in module.flow.origins(value)]
    return bool(nodes) and all(
        isinstance(node, ast.Call)
        and "chat" in module.flow.types(node)
        and not module.flow.call(node).keywords.keys() - {"tokenize", "add_generation_prompt"}
        for node in nodes
    )


def _origin_of_messages_column(module: Module, data: ast.expr) -> ast.AST | None:
    """Where a dataset of the file gets its column `messages`: a literal, or the last function that it is mapped by."""
    for origin in module.flow.origins(data):
        if not isinstance(origin.node, ast.Call):
            continue
        call = module.flow.call(origin.node)
        place: ast.AST | None = None
        if call.named("datasets.*Dataset.from_list", "datasets.*Dataset.from_dict") and call.args:
            place = _messages_key_in_literal(module, call.args[0])
        elif call.method == "map":
            place = _messages_returned_by_map(module, call)
        if place is not None:
            return place
    return None


def _messages_key_in_literal(module: Module, rows: ast.expr) -> ast.AST | None:
    """The key `messages` in rows that the file spells; None where it has none."""
    for part in ast.walk(next(iter(module.flow.origins(rows))).node):
        if isinstance(part, ast.Constant) and part.value == "messages":
            return part
    return None


def _messages_returned_by_map(module: Module, call: Call) -> ast.AST | None:
    """What the function of a `map` returns, where that has the key `messages`; None otherwise."""
    function_argument = call.argument(0, "function")
    if function_argument is None:
        return None
    for value in module.flow.returned_expressions_by_function.get(
        module.flow.function_that_expression_names(function_argument) or function_argument, []
    ):
        if "messages" in module.flow.dict_entries_and_if_complete(value)[0]:
            return value
    return None
