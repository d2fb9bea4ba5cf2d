"""A comma is missing in `target_modules`: two names became one that matches nothing.

## What it does
It finds adjacent string literals in the lists of names of a `LoraConfig`.

## Why it is bad
Python joins them (`"k_proj" "v_proj"` is `"k_projv_proj"`). peft only stops if no name matches at all, so neither of
the two modules gets an adapter, without a message.

## Example
```python
from peft import LoraConfig

config = LoraConfig(r=8, target_modules=["q_proj", "k_proj" "v_proj"])
```

## Use instead
```python
from peft import LoraConfig

config = LoraConfig(r=8, target_modules=["q_proj", "k_proj", "v_proj"])
```

## Fix safety
Safe: the comma is added. More modules get an adapter, which needs a little more memory.

## References
- vvvvvjdy/D-OPSD#5
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import Change, Changes
from truetune.source.parsed_source_file import Module

NAME_LISTS = ("target_modules", "modules_to_save", "exclude_modules", "target_parameters")


def _lora_configs(module: Module) -> Iterator[Call]:
    """The configurations of LoRA in a file."""
    return (call for call in module.all_calls if "lora" in module.flow.types(call.node))


class LoraTargetNamesJoined(SourceRule):
    code = "SRC017"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("LoRA configs that are made", _lora_configs)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _lora_configs(module):
            for name in NAME_LISTS:
                for node in _written_target_names(module, call.keywords.get(name)):
                    changes = _insert_missing_commas(module, node)
                    if changes:
                        yield self.finding(
                            f"a comma is missing in {name}: Python joins two names into {node.value!r}, which"
                            " matches no module",
                            "put a comma between the names",
                            cases=[case_of_node(module, node), case_of_node(module, call.node)],
                            fix=fix_of_changes(module, changes),
                        )


def _written_target_names(module: Module, expression: ast.expr | None) -> Iterator[ast.Constant]:
    """The texts in a list of targets that the code spells."""
    for origin in module.flow.origins(expression) if expression is not None else ():
        if isinstance(origin.node, (ast.List, ast.Tuple, ast.Set)):
            yield from (
                n
                for n in origin.node.elts
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )


# Python joins neighbouring literals without a word: a comma that is missing makes one name of two.
def _insert_missing_commas(module: Module, node: ast.Constant) -> Changes:
    """The edits that put a comma behind each literal of several that form one string."""
    start, end = module.span(node)
    text = module.text[start:end]
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(f"({text})", newline="").readline))
    except (tokenize.TokenError, SyntaxError):
        return ()
    ends = [
        starts[t.end[0] - 1] + t.end[1] - (t.end[0] == 1)
        for t in tokens
        if t.type == tokenize.STRING
    ]
    return tuple(Change(start + at, start + at, ",") for at in ends[:-1])
