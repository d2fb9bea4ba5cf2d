"""A script writes answers that should be JSON as Python prints them.

## What it does
Inspects scripts that train, or that write rows to a file. It fires if the content of the assistant's message, or the
answer column, is `str(x)` or `f"{x}"` of a dictionary or a list, and a text in the script mentions JSON. Scripts that
mention Python, or that have their rows next to them, are not reported: the rows are checked instead.

## Why it is bad
`str({"paid": None})` is `{'paid': None}`: single quotes, None, True. The model learns that form, and `json.loads` fails
on nearly every answer.

## Example
```python
import json

def row(record):
    fields = {"name": record["name"], "paid": record["paid"]}
    return {"messages": [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": record["text"]},
        {"role": "assistant", "content": str(fields)},
    ]}

with open("train.jsonl", "w") as file:
    file.writelines(json.dumps(row(one)) + "\\n" for one in records)
```

## Use instead
```python
import json

def row(record):
    fields = {"name": record["name"], "paid": record["paid"]}
    return {"messages": [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": record["text"]},
        {"role": "assistant", "content": json.dumps(fields, ensure_ascii=False)},
    ]}

with open("train.jsonl", "w") as file:
    file.writelines(json.dumps(row(one)) + "\\n" for one in records)
```

## Fix safety
Safe before training: `json.dumps` writes the same values. A model that is already trained has to be trained again.

## References
- Python documentation, `json.dumps`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_training_chats_nearby import find_nearby_chats
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.generation.texts_that_json_parsers_refuse import JSON_ASKED, PYTHON_ASKED
from truetune.source.parsed_source_file import Module

ANSWER_COLUMNS = ("completion", "output", "response", "answer", "target")
LISTS = (ast.List, ast.ListComp)
TEXT_METHODS = frozenset(("strip", "lower", "upper", "join", "format", "replace", "title"))


MAX_DEPTH = 3
"""Lists in lists"""


def _answers_of_rows_made(module: Module) -> Iterator[ast.expr]:
    """The answers of the rows that a script makes."""
    if not trains_a_model(module) and not any(module.calls("json.dump", "json.dumps")):
        if not any(module.methods("to_json", "write_all")):
            return
    for node in module.nodes(ast.Dict):
        entries = module.flow.dict_entries_and_if_complete(node)[0]
        role = entries.get("role")
        if role is not None and module.flow.value(role) == "assistant" and "content" in entries:
            yield entries["content"]
        yield from (entries[name] for name in ANSWER_COLUMNS if name in entries)


def _value_printed_by_answer(module: Module, answer: ast.expr) -> ast.expr | None:
    """The value that an answer prints, where it is `str(x)` or `f"{x}"`; None of any other answer."""
    for origin in module.flow.origins(answer):
        node = origin.node
        if isinstance(node, ast.JoinedStr) and len(node.values) == 1:
            part = node.values[0]
            return part.value if isinstance(part, ast.FormattedValue) else None
        if isinstance(node, ast.Call) and module.flow.call(node).named("str") and node.args:
            return node.args[0]
    return None


def _surely_prints_no_json(module: Module, node: ast.AST, depth: int = MAX_DEPTH) -> bool:
    """Does `str` of this value surely write no JSON? A list of numbers is JSON: `str([12, 40])`, as
    the corners of a box.
    """
    if isinstance(node, ast.Dict | ast.DictComp):
        return True
    if not isinstance(node, LISTS) or depth == 0:
        return False
    parts = node.elts if isinstance(node, ast.List) else [node.elt]
    made = [one.node for part in parts for one in module.flow.origins(part)]
    return any(
        _is_text_none_or_truth_value(module, one) or _surely_prints_no_json(module, one, depth - 1)
        for one in made
    )


def _is_text_none_or_truth_value(module: Module, node: ast.AST) -> bool:
    """Is the value a text, None or a truth value, which Python prints in its own way?"""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str | bool)
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.JoinedStr)
    call = module.flow.call(node)
    return call.method in TEXT_METHODS or call.named("str")


class AnswersPrintedAsPython(SourceRule):
    code = "SRC382"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_at = CodePlaces("answers of rows that a script makes", _answers_of_rows_made)

    def findings(self) -> Iterator[Finding]:
        """Findings on answers that should be JSON and are written as Python prints them."""
        module = self.subject
        if not _mentions_json_and_no_python(module) or find_nearby_chats(module.path) is not None:
            return
        for answer in _answers_of_rows_made(module):
            value = _value_printed_by_answer(module, answer)
            origins = [] if value is None else [one.node for one in module.flow.origins(value)]
            if (
                value is not None
                and origins
                and all(_surely_prints_no_json(module, one) for one in origins)
            ):
                yield self.finding(
                    "answers that should be JSON are written in Python's notation (single quotes, None, True):"
                    " the model learns that form, and json.loads fails on it",
                    f"use json.dumps({ast.unparse(value)}, ensure_ascii=False)",
                    cases=[case_of_node(module, answer)],
                )
                return


def _mentions_json_and_no_python(module: Module) -> bool:
    """Does a text of the script speak of JSON, and none of Python?"""
    texts = [node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str)]
    # A name of a file or a column is no text: `train.jsonl`, `python`.
    spoken = [text for text in texts if " " in text.strip()]
    return any(JSON_ASKED.search(text) for text in spoken) and not any(
        PYTHON_ASKED.search(text) for text in spoken
    )
