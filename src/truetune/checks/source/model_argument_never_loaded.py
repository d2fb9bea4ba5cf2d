"""A script has an option for the model to evaluate, but loads a fixed path instead.

## What it does
Finds a command line option that names a model (`--ckpt`, `--model_path`, `--adapter`) in a script that loads all models
from constant paths and never reads the option, or only prints it. An option that names an adapter also counts if the
base has its own option and nothing in the script loads an adapter. So does a function's parameter if the function loads
a constant path instead. It does not report options that are passed on to a function or a variable, or options that are
used as a whole (`vars(args)`).

## Why it is bad
Each run measures the same weights, whatever the option says: all checkpoints get the same score, and the training seems
to have no effect.

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
There is no automatic fix: if there are several loads, only you know which one is meant. The scores become those of the
weights that the option names; earlier ones were all of the fixed path.

## References
- docs.python.org/3/library/argparse.html
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
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.model_loads_and_paths import (
    constant_path,
    model_loads_and_paths,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

NAMES_A_MODEL = re.compile(
    r"(?:the_?|eval_)?(?:base_?)?(?:model|ckpt|checkpoint|adapter|weights|lora|peft)"
    r"(?:_?(?:name_or_path|name|path|dir|id|folder|model))?",
    re.I,
)
NAMES_AN_ADAPTER = re.compile(r"adapter|lora|peft", re.I)
LOADS_AN_ADAPTER = re.compile(
    r"\bpeft\b|load_adapter|LoRARequest|lora_request|load_state_dict|load_lora|set_adapter|load_checkpoint"
)
"""What a file holds that loads an adapter, or may"""
MESSAGES = re.compile(r"(?:^|\.)(?:print|log|info|debug|warning|error|write|writerow|echo|dump)$")
"""Functions that print, log or write something and load nothing"""


class UnusedOption(NamedTuple):
    """An option that names a model, the place that defines it, and what reads it."""

    name: str
    node: ast.AST
    reads: tuple[ast.AST, ...]


def _argparse_options(module: Module) -> Iterator[Call]:
    """The options of argparse."""
    yield from module.methods("add_argument")


def _loading_functions_and_model_parameters(
    module: Module,
) -> Iterator[tuple[ast.FunctionDef, ast.arg]]:
    """The functions that load a model in their own body, with each parameter that names a model."""
    loads = {id(call.node) for call, _ in model_loads_and_paths(module)}
    for function in module.nodes(ast.FunctionDef):
        if loads and any(id(node) in loads for node in ast.walk(function)):
            for parameter in (*function.args.args, *function.args.kwonlyargs):
                if NAMES_A_MODEL.fullmatch(parameter.arg):
                    yield function, parameter


def _options_and_model_parameters(module: Module) -> Iterator[ast.AST]:
    """Options of the command line, and parameters that name a model."""
    yield from (one.node for one in _argparse_options(module))
    yield from (parameter for _, parameter in _loading_functions_and_model_parameters(module))


class ModelArgumentNeverLoaded(SourceRule):
    code = "SRC300"
    fault = Fault.WRONG_MODEL_EVALUATED
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces(
        "options and parameters that may name a model", _options_and_model_parameters
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        loads = list(model_loads_and_paths(module))
        if not loads:
            return
        paths = [constant_path(module, given) for _, given in loads]
        is_adapter_loaded = LOADS_AN_ADAPTER.search(module.text) is not None
        for option in _unread_model_options(module):
            use = "is only printed" if option.reads else "is read nowhere"
            if all(paths):
                yield self.finding(
                    f"`{option.name}` {use}, and the model is loaded from {paths[0]!r}: every run measures these"
                    " weights, whatever the option says",
                    f"load the model, and its tokenizer, from `{option.name}`",
                    cases=[case_of_node(module, loads[0][1]), case_of_node(module, option.node)],
                )
            elif NAMES_AN_ADAPTER.search(option.name) and not is_adapter_loaded:
                base = ast.unparse(loads[0][1])
                yield self.finding(
                    f"`{option.name}` {use}, and nothing loads an adapter: the script measures the plain `{base}`"
                    " with or without the option",
                    f"load the adapter after the base model: model = PeftModel.from_pretrained(model, {option.name})",
                    cases=[case_of_node(module, loads[0][1]), case_of_node(module, option.node)],
                )
        yield from self._findings_on_unused_model_parameters(loads)

    def _findings_on_unused_model_parameters(
        self, loads: list[tuple[Call, ast.expr]]
    ) -> Iterator[Finding]:
        """Findings on parameters of functions that load a constant path in their place."""
        module = self.subject
        for function, parameter in _loading_functions_and_model_parameters(module):
            inside = {id(node) for node in ast.walk(function)}
            given = [path for call, path in loads if id(call.node) in inside]
            if not all(constant_path(module, path) for path in given):
                continue
            if _is_parameter_used_beyond_output(
                module, function, parameter
            ) or not _is_called_repeatedly(module, function):
                continue
            path = constant_path(module, given[0])
            yield self.finding(
                f"`{function.name}` takes `{parameter.arg}` but loads {path!r}: every call measures these weights",
                f"load `{parameter.arg}` instead of {path!r}",
                cases=[case_of_node(module, given[0]), case_of_node(module, parameter)],
            )


def _is_parameter_used_beyond_output(
    module: Module, function: ast.FunctionDef, parameter: ast.arg
) -> bool:
    """Does a function do more with a parameter than to print or write it?"""
    reads = (
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == parameter.arg
    )
    return not all(_is_only_printed_or_written(module, node) for node in reads)


def _is_called_repeatedly(module: Module, function: ast.FunctionDef) -> bool:
    """Is a function called more than once, or in a loop?"""
    calls = module.flow.calls_of_function_or_class(function)
    loops = (ast.For, ast.While, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.SetComp)
    return len(calls) > 1 or any(
        isinstance(around, loops) for call in calls for around in module.parents(call)
    )


def _unread_model_options(module: Module) -> Iterator[UnusedOption]:
    """The options that name a model and reach nothing but messages."""
    parsed = _names_of_parsed_arguments(module)
    if not parsed or _are_options_passed_whole(module, parsed):
        return
    for call in _argparse_options(module):
        name = _attribute_name_of_option(call)
        if not NAMES_A_MODEL.fullmatch(name):
            continue
        reads = tuple(
            node
            for node in module.nodes(ast.Attribute)
            if node.attr == name and isinstance(node.value, ast.Name) and node.value.id in parsed
        )
        if all(_is_only_printed_or_written(module, node) for node in reads):
            yield UnusedOption(f"{parsed[0]}.{name}", call.node, reads)


def _attribute_name_of_option(call: Call) -> str:
    """The attribute that an option becomes: `model_path` of `--model-path`."""
    dest_argument = call.keywords.get("dest")
    texts = [
        one.value
        for one in call.args
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    if isinstance(dest_argument, ast.Constant):
        return str(dest_argument.value)
    long = next((one for one in texts if one.startswith("--")), texts[0] if texts else "")
    return long.lstrip("-").replace("-", "_")


def _names_of_parsed_arguments(module: Module) -> list[str]:
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


def _are_options_passed_whole(module: Module, names: list[str]) -> bool:
    """Are the options handed on as one: `main(args)`, `vars(args)`, `getattr(args, name)`?"""
    return any(
        node.id in names
        and isinstance(node.ctx, ast.Load)
        and not isinstance(module.scopes.parent.get(node), ast.Attribute)
        for node in module.nodes(ast.Name)
    )


def _is_only_printed_or_written(module: Module, node: ast.AST) -> bool:
    """Does a value only stand in what a script prints or writes?"""
    statement = module.statement(node)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return MESSAGES.search(ast.unparse(statement.value.func)) is not None
