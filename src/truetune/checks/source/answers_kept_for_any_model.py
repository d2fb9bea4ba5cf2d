"""Answers are read from a file where it is there, and its name does not say of which model they are.

## What it does
Looks for `if os.path.exists("preds.jsonl")` (or `Path(...).exists()`) that reads answers instead of asking the model,
where the model is an argument of the script, or the variable of a loop, and the name of the file is constant. Silent
where a part of the name comes from the model, where an option overrides the test, and where the folder is changed.

## Why it is bad
The first model's answers are scored for every later one: whatever is trained, the score is the same to the last digit.

## Example
```python
import json
import os
import sys

from vllm import LLM

if os.path.exists("preds.jsonl"):
    answers = json.load(open("preds.jsonl"))
else:
    answers = [out.outputs[0].text for out in LLM(sys.argv[1]).generate(prompts)]
    json.dump(answers, open("preds.jsonl", "w"))
```

## Use instead
```python
import json
import os
import sys

from vllm import LLM

path = f"preds-{sys.argv[1].replace('/', '-')}.jsonl"
if os.path.exists(path):
    answers = json.load(open(path))
else:
    answers = [out.outputs[0].text for out in LLM(sys.argv[1]).generate(prompts)]
    json.dump(answers, open(path, "w"))
```

## Fix safety
There is no automatic fix. Delete the file that is there: it does not say whose answers it holds. A model that is
trained again under the same path needs its time or a hash in the name as well.

## References
- docs.python.org/3/library/os.path.html (`exists` tells nothing of what a file holds)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.model_argument_never_loaded import constant_path, model_loads
from truetune.source.module import Module

ASKS_A_MODEL = re.compile(
    r"(?:^|\.)(?:generate|chat|batch_generate|generate_\w+|predict|pipeline)$"
)
FROM_OUTSIDE = re.compile(
    r"sys\.argv|environ|getenv|parse_args|^(?:args|opts?|cfg|config|FLAGS)\.\w+"
)
DATA_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".pkl", ".parquet", ".pt")
WRITERS = ("write_text", "to_json", "to_csv", "to_parquet", "to_pickle")


class KeptAnswers(NamedTuple):
    """A test for a file of answers."""

    path: str
    test: ast.If
    model: ast.expr


def _tests_of_files(module: Module) -> Iterator[ast.AST]:
    """Calls that ask whether a file is there."""
    for call in module.all_calls:
        if call.named("os.path.exists", "os.path.isfile") or call.method in ("exists", "is_file"):
            yield call.node


class AnswersKeptForAnyModel(SourceRule):
    code = "SRC301"
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "warning"
    looks_at = CodePlaces("tests for a file", _tests_of_files)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for kept in _kept_answers(module):
            model = ast.unparse(kept.model)
            yield self.finding(
                f"answers are read from {kept.path!r} where it is there, whatever model `{model}` names: each later"
                " model gets the answers of the first",
                f"put the model into the name of the file, path = f\"...-{{{model}.replace('/', '-')}}\", and delete"
                f" {kept.path}",
                cases=[case_at(module, kept.test.test), case_at(module, kept.model)],
            )


def _kept_answers(module: Module) -> Iterator[KeptAnswers]:
    """The tests behind which a model is asked only where no file is there."""
    if "chdir" in module.text:
        return
    varying = [given for _, given in model_loads(module) if _comes_from_outside(module, given)]
    if not varying:
        return
    for test in module.nodes(ast.If):
        path, is_there = _tested_path(module, test)
        asked = test.orelse if is_there else test.body
        if path and _asks_a_model(module, asked) and _is_written(module, path):
            yield KeptAnswers(path, test, varying[0])


def _comes_from_outside(module: Module, given: ast.expr) -> bool:
    """Is a path an argument of the script, or what a loop goes over?"""
    texts = [ast.unparse(given), *(ast.unparse(one.node) for one in module.flow.origins(given))]
    if any(FROM_OUTSIDE.search(text) for text in texts):
        return True
    loops = [around for around in module.parents(given) if isinstance(around, ast.For)]
    return isinstance(given, ast.Name) and any(
        given.id in {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        for loop in loops
    )


def _tested_path(module: Module, test: ast.If) -> tuple[str, bool]:
    """The constant path that a branch looks for, and whether its body is where the file is there."""
    node, is_there = test.test, True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node, is_there = node.operand, False
    if not isinstance(node, ast.Call):
        return "", is_there
    call = module.flow.call(node)
    given: ast.expr | None = None
    if call.named("os.path.exists", "os.path.isfile") and call.args:
        given = call.args[0]
    elif call.method in ("exists", "is_file"):
        given = call.receiver
    path = "" if given is None else _path_of(module, given)
    return (path if path.endswith(DATA_SUFFIXES) else ""), is_there


def _path_of(module: Module, given: ast.expr) -> str:
    """A constant path, also in `Path(...)`."""
    made = module.flow.producing_call(given)
    if made is not None and made.named("pathlib.Path", "Path") and len(made.args) == 1:
        given = made.args[0]
    return constant_path(module, given)


def _asks_a_model(module: Module, body: list[ast.stmt]) -> bool:
    """Is a model asked in these statements, or in a function of the file that they call?"""
    calls = [node for part in body for node in ast.walk(part) if isinstance(node, ast.Call)]
    if any(ASKS_A_MODEL.search(ast.unparse(one.func)) for one in calls):
        return True
    functions = [module.flow.function(one.func) for one in calls]
    inner = [
        node
        for function in functions
        if function is not None
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    ]
    return any(ASKS_A_MODEL.search(ast.unparse(one.func)) for one in inner)


def _is_written(module: Module, path: str) -> bool:
    """Does the script write this file itself?"""
    for call in module.all_calls:
        opened = call.argument(0, "file") if call.named("open") else None
        mode = call.argument(1, "mode") if call.named("open") else None
        if opened is not None and isinstance(mode, ast.Constant) and "w" in str(mode.value):
            if _path_of(module, opened) == path:
                return True
        if (
            call.method == "open"
            and call.receiver is not None
            and _path_of(module, call.receiver) == path
        ):
            if any(isinstance(one, ast.Constant) and "w" in str(one.value) for one in call.args):
                return True
        if call.method in WRITERS:
            texts = [one for one in (call.receiver, *call.args) if one is not None]
            if any(_path_of(module, one) == path for one in texts):
                return True
    return False
