"""A reward function uses a completion as a string, but the rows make it a list of messages.

## What it does
Finds functions with a parameter `completions` that call a string method on one of them (`completion.split("####")`), or
search it with a pattern, if the prompts of the rows are lists of messages. The rows are those in the script, or in a
file that it names or that is next to it. It does not fire if the function reads `[0]["content"]`, or checks the type.

## Why it is bad
TRL passes a completion in the format of its prompt: `[{"role": "assistant", "content": "..."}]` for messages. The
method does not exist on a list. Inside a `try` the error is caught, and each answer gets the reward of the handler.

## Example
```python
ROWS = [
    {"prompt": [{"role": "user", "content": "2 + 2?"}], "answer": "4"},
    {"prompt": [{"role": "user", "content": "3 + 3?"}], "answer": "6"},
    {"prompt": [{"role": "user", "content": "4 + 4?"}], "answer": "8"},
]


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            scores.append(float(completion.split("####")[1].strip() == gold))
        except Exception:
            scores.append(0.0)
    return scores
```

## Use instead
```python
ROWS = [
    {"prompt": [{"role": "user", "content": "2 + 2?"}], "answer": "4"},
    {"prompt": [{"role": "user", "content": "3 + 3?"}], "answer": "6"},
    {"prompt": [{"role": "user", "content": "4 + 4?"}], "answer": "8"},
]


def correct(completions, answer, **kwargs):
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            scores.append(float(completion[0]["content"].split("####")[1].strip() == gold))
        except IndexError:
            scores.append(0.0)
    return scores
```

## Fix safety
There is no automatic fix. You can also use plain-text prompts instead; they must then be rendered with the chat
template.

## References
- https://huggingface.co/docs/trl/grpo_trainer (conversational prompts: a completion is a list of messages)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompts_that_are_message_lists import (
    prompts_that_are_message_lists,
)
from truetune.checks.source.evidence.reward_functions import (
    completion_names,
    loops_over_completions,
    reward_functions_with_kwargs,
)
from truetune.checks.source.evidence.scored_rows import rows_with_column_named_or_beside

TEXT_METHODS = frozenset(
    (
        "split",
        "rsplit",
        "strip",
        "lower",
        "find",
        "startswith",
        "endswith",
        "splitlines",
        "replace",
        "partition",
    )
)
"""Methods that a list does not have"""
KNOWS_MESSAGES = re.compile(r"isinstance\(|\[[\"']content[\"']\]|\.get\([\"']content")
"""What reads the message, or asks whether it is one"""


class RewardReadsMessagesAsText(SourceRule):
    code = "SRC275"
    fault = Fault.REWARD_FUNCTION_FAILS
    symptoms = ("dpo-without-effect", "loss-does-not-fall")
    severity = "error"
    looks_at = CodePlaces("functions of completions", reward_functions_with_kwargs)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for function in reward_functions_with_kwargs(module):
            if KNOWS_MESSAGES.search(ast.unparse(function)):
                continue
            use = next(_text_uses_of_completion(function), None)
            if use is None:
                continue
            rows = rows_with_column_named_or_beside(module, "prompt")
            expression = prompts_that_are_message_lists(module)
            if expression is None and (
                rows is None or not all(isinstance(one["prompt"], list) for one in rows.rows)
            ):
                continue
            source = (
                f"the prompts of {rows.source}"
                if rows is not None and expression is None
                else "the prompts"
            )
            yield self.finding(
                f"{function.name} uses a completion as a string, but {source} are messages: each"
                " completion is a list with one message, on which this fails",
                'use the text of the message: completion[0]["content"]; and only catch the exceptions that a wrong'
                " answer can raise (IndexError, ValueError)",
                cases=[
                    case_of_node(module, use),
                    *([case_of_node(module, expression)] if expression is not None else []),
                ],
            )


def _text_uses_of_completion(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The places at which a completion is used as a text is."""
    names = _loop_names_of_completions(function)
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if _is_text_method(node.func, names) or _is_pattern_search(node, names):
            yield node


def _loop_names_of_completions(function: ast.FunctionDef) -> set[str]:
    """The names that loops bind to a completion, without names that are assigned something else."""
    names = {
        name
        for target, iterable in loops_over_completions(function)
        for name in completion_names(target, iterable)
    }
    assigned = {
        node.id
        for one in ast.walk(function)
        if isinstance(one, ast.Assign)
        for node in one.targets
        if isinstance(node, ast.Name)
    }
    return names - assigned


def _is_text_method(method: ast.Attribute, names: set[str]) -> bool:
    """Is the attribute a method of texts on a completion: `completion.split` or the like?"""
    receiver = method.value
    return isinstance(receiver, ast.Name) and receiver.id in names and method.attr in TEXT_METHODS


def _is_pattern_search(call: ast.Call, names: set[str]) -> bool:
    """Does the call search a completion by a pattern: `re.search(pattern, completion)` or the like?"""
    if ast.unparse(call.func).partition(".")[0] != "re" or len(call.args) < 2:
        return False
    searched = call.args[1]
    return isinstance(searched, ast.Name) and searched.id in names
