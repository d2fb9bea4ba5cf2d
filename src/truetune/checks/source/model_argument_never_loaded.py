"""A script takes the model to evaluate as an argument and loads a path that is written in it.

## What it does
Finds an option of the command line that names a model (`--ckpt`, `--model_path`, `--adapter`) in a script where all
models are loaded from constant paths, and where the option is read nowhere or in messages alone. Silent where the
option is handed on, to a function or a variable, and where its options are used as a whole.

## Why it is bad
Each run measures the same weights, whatever the option says: all checkpoints have one score, and the training seems to
do nothing.

## Example
```python
import argparse

from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--ckpt", required=True)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("out/checkpoint-100")
print(args.ckpt, evaluate(model))
```

## Use instead
```python
import argparse

from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--ckpt", required=True)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.ckpt)
print(args.ckpt, evaluate(model))
```

## Fix safety
There is no automatic fix: which of several loads is meant is the writer's. Scores become those of the named weights.

## References
- docs.python.org/3/library/argparse.html
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
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

NAMES_A_MODEL = re.compile(
    r"(?:the_?|eval_)?(?:base_?)?(?:model|ckpt|checkpoint|adapter|weights|lora|peft)"
    r"(?:_?(?:name_or_path|name|path|dir|id|folder|model))?",
    re.I,
)
LOADERS = (
    "transformers.*Model*.from_pretrained",
    "peft.*Model*.from_pretrained",
    "vllm.LLM",
    "vllm.engine.*.LLM",
)
MESSAGES = re.compile(r"(?:^|\.)(?:print|log|info|debug|warning|error|write|writerow|echo)$")
"""Functions that print or log something and load nothing"""


class UnusedOption(NamedTuple):
    """An option that names a model, the place that defines it, and what reads it."""

    name: str
    node: ast.AST
    reads: tuple[ast.AST, ...]


def model_loads(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that load a model, and the path that they are given."""
    for call in module.calls(*LOADERS):
        name = "model" if call.named("vllm.*") else "pretrained_model_name_or_path"
        place = 1 if call.named("peft.*") else 0
        given = call.argument(place, "model_id" if call.named("peft.*") else name)
        if given is not None:
            yield call, given


def constant_path(module: Module, given: ast.expr) -> str:
    """The path that an expression is, where it is one text of the file; empty for anything else."""
    nodes = [origin.node for origin in module.flow.origins(given)]
    if len(nodes) != 1 or not isinstance(nodes[0], ast.Constant):
        return ""
    return nodes[0].value if isinstance(nodes[0].value, str) else ""


def _options(module: Module) -> Iterator[Call]:
    """The options of argparse."""
    yield from module.methods("add_argument")


class ModelArgumentNeverLoaded(SourceRule):
    code = "SRC300"
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces(
        "options of the command line", lambda module: (one.node for one in _options(module))
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        loads = list(model_loads(module))
        paths = [constant_path(module, given) for _, given in loads]
        if not loads or not all(paths):
            return
        for option in _unused_options(module):
            use = "is only printed" if option.reads else "is read nowhere"
            yield self.finding(
                f"`{option.name}` {use}, and the model is loaded from {paths[0]!r}: every run measures these"
                " weights, whatever the option says",
                f"load the model, and its tokenizer, from `{option.name}`",
                cases=[case_at(module, loads[0][1]), case_at(module, option.node)],
            )


def _unused_options(module: Module) -> Iterator[UnusedOption]:
    """The options that name a model and reach nothing but messages."""
    parsed = _parsed_names(module)
    if not parsed or _is_used_whole(module, parsed):
        return
    for call in _options(module):
        name = _attribute_of(call)
        if not NAMES_A_MODEL.fullmatch(name):
            continue
        reads = tuple(
            node
            for node in module.nodes(ast.Attribute)
            if node.attr == name and isinstance(node.value, ast.Name) and node.value.id in parsed
        )
        if all(_is_in_a_message(module, node) for node in reads):
            yield UnusedOption(f"{parsed[0]}.{name}", call.node, reads)


def _attribute_of(call: Call) -> str:
    """The attribute that an option becomes: `model_path` of `--model-path`."""
    given = call.keywords.get("dest")
    texts = [
        one.value
        for one in call.args
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    if isinstance(given, ast.Constant):
        return str(given.value)
    long = next((one for one in texts if one.startswith("--")), texts[0] if texts else "")
    return long.lstrip("-").replace("-", "_")


def _parsed_names(module: Module) -> list[str]:
    """The names that hold what argparse parsed."""
    names = []
    for node in module.nodes(ast.Assign):
        text = ast.unparse(node.value)
        target = node.targets[0]
        target = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if ".parse_args(" in text or ".parse_known_args(" in text:
            if not isinstance(target, ast.Name):
                return []
            names.append(target.id)
    return names


def _is_used_whole(module: Module, names: list[str]) -> bool:
    """Are the options handed on as one: `main(args)`, `vars(args)`, `getattr(args, name)`?"""
    return any(
        node.id in names
        and isinstance(node.ctx, ast.Load)
        and not isinstance(module.scopes.parent.get(node), ast.Attribute)
        for node in module.nodes(ast.Name)
    )


def _is_in_a_message(module: Module, node: ast.AST) -> bool:
    """Does a value only stand in what a script prints or writes?"""
    statement = module.statement(node)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return MESSAGES.search(ast.unparse(statement.value.func)) is not None
