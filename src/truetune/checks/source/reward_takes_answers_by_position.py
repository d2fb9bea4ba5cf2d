"""A reward function picks the reference from a list in the file by the position in the batch.

## What it does
Finds functions with a parameter `completions` that use `ANSWERS[i]` for the i-th completion (`enumerate(completions)`,
`range(len(completions))`), or that zip the completions with a list from outside the function. It also finds functions
that compare each completion with the first element of a column (`target = answer[0]`), which is a list with one element
per completion. This second case is not reported if the settings make each call contain only one prompt.

## Why it is bad
A batch contains several completions of each prompt, and its rows are sampled at random. The i-th completion does not
belong to the i-th row of the file: the reward is that of another question, and accuracy stays at chance. With
`answer[0]` it is right only for the completions of the first prompt.

## Example
```python
ANSWERS = ["4", "9", "16"]


def correct(completions, **kwargs):
    return [float(text.strip() == ANSWERS[i]) for i, text in enumerate(completions)]
```

## Use instead
```python
ANSWERS = ["4", "9", "16"]


def correct(completions, answer, **kwargs):
    return [float(text.strip() == gold) for text, gold in zip(completions, answer)]
```

## Fix safety
There is no automatic fix: the rows need a column with the reference, and you choose its name.

## References
- https://huggingface.co/docs/trl/grpo_trainer (columns of the rows reach a reward function as keyword arguments, one
  value for each completion)
- huggingface/trl#6680 (one call holds the completions of several prompts)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.reward_functions import (
    COMPLETIONS,
    call_of_plain_function,
    loops_over_completions,
    reward_functions_with_kwargs,
)
from truetune.checks.source.evidence.rewards_reading_first_of_column import (
    first_element_used_for_each_completion,
)
from truetune.source.parsed_source_file import Module


class RewardTakesAnswersByPosition(SourceRule):
    code = "SRC274"
    fault = Fault.ANSWERS_COMPARED_WITH_OTHER_REFERENCES
    symptoms = ("reward-does-not-rise", "dpo-without-effect", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("functions of completions", reward_functions_with_kwargs)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for function in reward_functions_with_kwargs(module):
            for node, name in _reads_of_file_lists(module, function):
                yield self.finding(
                    f"{function.name} picks the reference of a completion from `{name}` by its position in the batch:"
                    " batches contain several completions of randomly sampled rows, so it gets another row's"
                    " reference",
                    'put each row\'s reference into a column "answer", and take it as an argument: def'
                    f" {function.name}(completions, answer, **kwargs), with zip(completions, answer)",
                    cases=[case_of_node(module, node)],
                )
                break
            yield from self._finding_on_comparison_with_one_element(function)

    def _finding_on_comparison_with_one_element(
        self, function: ast.FunctionDef
    ) -> Iterator[Finding]:
        """The finding on a function that compares all completions with one element of a column."""
        first_of_column = first_element_used_for_each_completion(self.subject, function)
        if first_of_column is None:
            return
        column = first_of_column.column
        yield self.finding(
            f"{function.name} uses {column}[0] for every completion: `{column}` has one element per completion, and a"
            " batch contains several prompts, so all but the first get another row's value",
            f"loop over both together: `for completion, one in zip(completions, {column})`",
            cases=[
                case_of_node(self.subject, one)
                for one in (first_of_column.used, first_of_column.read)
            ],
        )


def _reads_of_file_lists(
    module: Module, function: ast.FunctionDef
) -> Iterator[tuple[ast.AST, str]]:
    """Where a list of the file is read at the place of a completion, and the name of the list."""
    lists = _names_assigned_outside_functions(module) - _parameters_and_assigned_names(function)
    for target, iterable in loops_over_completions(function):
        joined = call_of_plain_function(iterable, "zip")
        for one in joined.args if joined is not None else ():
            if isinstance(one, ast.Name) and one.id in lists:
                yield one, one.id
        yield from _reads_at_index(
            function, _index_name_of_completion_loop(target, iterable), lists
        )


def _reads_at_index(
    function: ast.FunctionDef, place: str, lists: set[str]
) -> Iterator[tuple[ast.AST, str]]:
    """Where one of these lists is read as `list[place]`; nowhere where the place has no name."""
    for node in ast.walk(function):
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            continue
        is_place = isinstance(node.slice, ast.Name) and node.slice.id == place
        if is_place and node.value.id in lists and isinstance(node.ctx, ast.Load):
            yield node, node.value.id


def _index_name_of_completion_loop(target: ast.expr, iterable: ast.expr) -> str:
    """The name that counts the completions; empty where none does."""
    counted = call_of_plain_function(iterable, "enumerate")
    if counted is not None and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        first = target.elts[0]
        return first.id if isinstance(first, ast.Name) else ""
    ranged = call_of_plain_function(iterable, "range")
    is_length = ranged is not None and ast.unparse(ranged) == f"range(len({COMPLETIONS}))"
    return target.id if is_length and isinstance(target, ast.Name) else ""


def _names_assigned_outside_functions(module: Module) -> set[str]:
    """Names that are assigned outside of functions."""
    return {
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _parameters_and_assigned_names(function: ast.FunctionDef) -> set[str]:
    """Parameters of a function, and what it assigns."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return {one.arg for one in arguments} | {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
