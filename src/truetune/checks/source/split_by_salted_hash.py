"""Rows are split by `hash()` of a string, which differs in each process.

## What it does
Finds conditions on `hash(x) % n` that put rows into training or evaluation, where `x` is a string: made by `str`, an
f-string or a string method, or a field that contains strings in the file next to the script. It is info if the field's
type is not known. It does not fire if a job or a settings file of the project sets PYTHONHASHSEED, or for numbers,
whose hash is the number itself.

## Why it is bad
Python salts string hashes with a different random number in each process. Two runs evaluate different rows, so their
scores differ. A resumed run, or a separate evaluation script, splits the rows differently: most of its evaluation rows
were trained on, and its loss is far too good. With several GPUs, each process has its own split.

## Example
```python
import json

from transformers import Trainer

rows = [json.loads(line) for line in open("chats.jsonl")]
train = [row for row in rows if hash(str(row["id"])) % 20 != 0]
val = [row for row in rows if hash(str(row["id"])) % 20 == 0]
Trainer(model=model, train_dataset=train, eval_dataset=val).train()
```

## Use instead
```python
import json
import zlib

from transformers import Trainer

rows = [json.loads(line) for line in open("chats.jsonl")]
train = [row for row in rows if zlib.crc32(str(row["id"]).encode()) % 20 != 0]
val = [row for row in rows if zlib.crc32(str(row["id"]).encode()) % 20 == 0]
Trainer(model=model, train_dataset=train, eval_dataset=val).train()
```

## Fix safety
There is no automatic fix: the split changes once more, so don't evaluate models that were trained before with it.

## References
- Python documentation, `object.__hash__` and PYTHONHASHSEED
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.python_hash_seeds import project_fixes_hash_seed
from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.checks.source.evidence.scored_rows import rows_with_column_if_unambiguous
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

Hashed = Literal["text", "number", "unknown"]
PARTS = re.compile(
    r"\b\w*(?:train|val|valid|validation|test|eval|dev|held_?out|holdout)\w*\b", re.I
)
"""Names of the parts that rows are divided into"""
TEXT_METHODS = frozenset(
    (
        "strip",
        "lower",
        "upper",
        "encode",
        "join",
        "format",
        "replace",
        "casefold",
        "title",
        "hexdigest",
    )
)


def _hash_remainders(module: Module) -> Iterator[tuple[Call, ast.BinOp]]:
    """The remainders `hash(x) % n`, also of `abs(hash(x))`, each with its call of `hash`."""
    for call in module.calls("hash"):
        if len(call.args) != 1:
            continue
        around = module.scopes.parent.get(call.node)
        if isinstance(around, ast.Call) and module.flow.name(around.func) == "abs":
            around = module.scopes.parent.get(around)
        if isinstance(around, ast.BinOp) and isinstance(around.op, ast.Mod):
            yield call, around


def _hash_remainder_nodes(module: Module) -> Iterator[ast.AST]:
    """The remainders of hashes in a file."""
    return (remainder for _, remainder in _hash_remainders(module))


class SplitBySaltedHash(SourceRule):
    code = "SRC408"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    severity = "warning"
    looks_at = CodePlaces("remainders of hashes", _hash_remainder_nodes)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        kinds = {
            remainder: _kind_of_hashed_value(module, call.args[0])
            for call, remainder in _hash_remainders(module)
            if _divides_training_from_evaluation(module, remainder)
        }
        salted = [place for place, kind in kinds.items() if kind != "number"]
        if not salted or project_fixes_hash_seed(module):
            return
        is_text = any(kinds[place] == "text" for place in salted)
        yield self.finding(
            "rows are split by `hash`"
            + ("" if is_text else ", which matters if it gets a string")
            + ": the hash of a string differs in each process, so a resumed run or another script evaluates rows that"
            " were trained on",
            "use an unsalted hash: zlib.crc32(str(x).encode()) % n; or split once, and save both parts",
            severity="warning" if is_text else "info",
            cases=[case_of_node(module, place) for place in salted],
        )


def _kind_of_hashed_value(module: Module, hashed: ast.expr) -> Hashed:
    """Whether the hashed value is a text, whose hash is salted, or a number, whose hash is not."""
    origins = module.flow.origins(hashed)
    if any(_is_row_number(module, origin) for origin in origins):
        return "number"
    kinds = {_kind_of_expression(module, origin.node) for origin in origins}
    if "number" in kinds:
        return "number"
    return "text" if kinds == {"text"} else "unknown"


def _is_row_number(module: Module, origin: Origin) -> bool:
    """Is the origin of a value the number that `enumerate` or `range` gives with each row?"""
    if not origin.element or not isinstance(origin.node, ast.Call):
        return False
    name = module.flow.name(origin.node.func)
    return name == "range" or (name == "enumerate" and origin.path[:1] == (0,))


def _kind_of_expression(module: Module, node: ast.AST) -> Hashed:
    """Whether one expression is a text, whose hash is salted, or a number, whose hash is not."""
    if isinstance(node, ast.JoinedStr):
        return "text"
    if isinstance(node, ast.Call):
        return _kind_of_call_result(module.flow.call(node))
    column = field_name_read(node) if isinstance(node, ast.expr) else None
    return "unknown" if column is None else _kind_of_column(module, column)


def _kind_of_call_result(call: Call) -> Hashed:
    """Whether a call gives back a text, whose hash is salted, or a number, whose hash is not."""
    if call.named("str", "repr", "json.dumps") or call.method in TEXT_METHODS:
        return "text"
    return "number" if call.named("int", "float", "len", "round") else "unknown"


def _kind_of_column(module: Module, column: str) -> Hashed:
    """Whether a column of the rows beside the script holds texts, whose hash is salted, or numbers,
    whose hash is not.
    """
    rows = rows_with_column_if_unambiguous(module, column)
    if rows is None:
        return "unknown"
    values = [row[column] for row in rows.rows]
    if all(isinstance(value, str) for value in values):
        return "text"
    return "number" if all(isinstance(value, int | float) for value in values) else "unknown"


def _divides_training_from_evaluation(module: Module, remainder: ast.BinOp) -> bool:
    """Does the code around a remainder tell training rows from evaluation rows?"""
    is_compared = False
    for parent in module.parents(remainder):
        is_compared = is_compared or isinstance(parent, ast.Compare)
        if isinstance(parent, ast.Return | ast.Lambda):
            continue
        if isinstance(parent, ast.stmt):
            # A condition with what it does, or a function that tells the part of a row.
            return is_compared and PARTS.search(ast.unparse(parent)) is not None
    return False
