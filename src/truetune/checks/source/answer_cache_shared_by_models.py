"""Answers are read from a cache file whose name does not say which model gave them.

## What it does
Finds `if os.path.exists("preds.jsonl")` (or `Path(...).exists()`) that reads answers instead of asking the model, if
the model is an argument of the script or a loop variable, and the file's name is constant. It also finds a function
that caches the answers of its model argument on disk (`diskcache`, `shelve`, `SqliteDict`, a dictionary read from a
file) under a key without the model. Not reported: a file name that contains the model, an option that overrides the
test, and a script that changes to another folder.

## Why it is bad
The first model's answers are scored for every later model: whatever is trained, the score is the same to the last
digit.

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
There is no automatic fix. Delete the existing file: it does not say which model gave its answers. If a model is trained
again under the same path, put its time or a hash of its weights into the name as well.

## References
- docs.python.org/3/library/os.path.html (`exists` tells nothing of what a file holds)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answer_caches_and_their_keys import (
    disk_caches_without_model_in_key,
    stores_in_mappings_also_read,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.files_opened_for_writing import path_opened_for_writing
from truetune.checks.source.evidence.model_loads_and_paths import (
    constant_path,
    model_loads_and_paths,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ASKS_A_MODEL = re.compile(
    r"(?:^|\.)(?:generate|chat|batch_generate|generate_\w+|predict|pipeline)$"
)
FROM_OUTSIDE = re.compile(
    r"sys\.argv|environ|getenv|parse_args|^(?:args|opts?|cfg|config|FLAGS)\.\w+"
)
DATA_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".pkl", ".parquet", ".pt")
WRITERS = ("write_text", "to_json", "to_csv", "to_parquet", "to_pickle")


class KeptAnswers(NamedTuple):
    """A test whether a file of answers is there, after which a model is asked only if it is not."""

    path: str
    test: ast.If
    model: ast.expr


def _file_existence_tests(module: Module) -> Iterator[ast.AST]:
    """Calls that ask whether a file is there."""
    for call in module.all_calls:
        if call.named("os.path.exists", "os.path.isfile") or call.method in ("exists", "is_file"):
            yield call.node
    yield from (node for _, node in stores_in_mappings_also_read(module))


class AnswerCacheSharedByModels(SourceRule):
    code = "SRC301"
    fault = Fault.ANSWERS_REUSED_FOR_ANOTHER_MODEL
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "warning"
    looks_at = CodePlaces("tests for a file, and caches of answers", _file_existence_tests)

    def findings(self) -> Iterator[Finding]:
        """Findings on answers that are read from a file whose name does not say of which model they are."""
        module = self.subject
        for kept in _file_tests_that_spare_the_model(module):
            model = ast.unparse(kept.model)
            yield self.finding(
                f"answers are read from {kept.path!r} if it exists, whatever model `{model}` names: every later"
                " model is scored on the answers of the first",
                f"put the model into the file's name, path = f\"...-{{{model}.replace('/', '-')}}\", and delete"
                f" {kept.path}",
                cases=[case_of_node(module, kept.test.test), case_of_node(module, kept.model)],
            )
        for cache in disk_caches_without_model_in_key(module):
            yield self.finding(
                f"`{cache.name}` caches answers under a key without `{cache.model}`: a later model is scored on the"
                " answers that an earlier one gave to the same prompt",
                f"add {cache.model} to the key, with the time or a hash of its weights, and delete the entries of"
                f" {cache.name}",
                cases=[case_of_node(module, cache.store), case_of_node(module, cache.made)],
            )


def _file_tests_that_spare_the_model(module: Module) -> Iterator[KeptAnswers]:
    """The tests after which a model is asked only where no file is there."""
    if "chdir" in module.text:
        return
    varying = [
        given
        for _, given in model_loads_and_paths(module)
        if _is_argument_or_loop_value(module, given)
    ]
    if not varying:
        return
    for test in module.nodes(ast.If):
        path, is_there = _tested_path_and_does_body_run_if_present(module, test)
        asked = test.orelse if is_there else test.body
        if path and _asks_a_model(module, asked) and _writes_file(module, path):
            yield KeptAnswers(path, test, varying[0])


def _is_argument_or_loop_value(module: Module, expression: ast.expr) -> bool:
    """Is a path an argument of the script, or what a loop goes over?"""
    texts = [
        ast.unparse(expression),
        *(ast.unparse(one.node) for one in module.flow.origins(expression)),
    ]
    if any(FROM_OUTSIDE.search(text) for text in texts):
        return True
    loops = [around for around in module.parents(expression) if isinstance(around, ast.For)]
    return isinstance(expression, ast.Name) and any(
        expression.id in {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        for loop in loops
    )


def _tested_path_and_does_body_run_if_present(module: Module, test: ast.If) -> tuple[str, bool]:
    """The constant path that a branch tests for, and whether its body runs where the file is there."""
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
    path = "" if given is None else _constant_path(module, given)
    return (path if path.endswith(DATA_SUFFIXES) else ""), is_there


def _constant_path(module: Module, given: ast.expr) -> str:
    """A constant path, also in `Path(...)`."""
    producer = module.flow.producing_call(given)
    if producer is not None and producer.named("pathlib.Path", "Path") and len(producer.args) == 1:
        given = producer.args[0]
    return constant_path(module, given)


def _asks_a_model(module: Module, body: list[ast.stmt]) -> bool:
    """Is a model asked in these statements, or in a function of the file that they call?"""
    calls = [call for part in body for call in _calls_in(part)]
    functions = [module.flow.function_that_expression_names(call.func) for call in calls]
    inner = [call for one in functions if one is not None for call in _calls_in(one)]
    return any(ASKS_A_MODEL.search(ast.unparse(call.func)) for call in (*calls, *inner))


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls within a node."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def _writes_file(module: Module, path: str) -> bool:
    """Does the script write this file itself?"""
    written = (one for call in module.all_calls for one in _paths_written(module, call))
    return any(_constant_path(module, one) == path for one in written)


def _paths_written(module: Module, call: Call) -> Iterator[ast.expr]:
    """The expressions that may be the path of the file that a call writes."""
    opened = path_opened_for_writing(module, call)
    if opened is not None:
        yield opened
    if call.method in WRITERS:
        yield from call.args
        if call.receiver is not None:
            yield call.receiver
