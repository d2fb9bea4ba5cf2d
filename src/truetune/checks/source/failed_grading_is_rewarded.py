"""An answer on which the grader fails gets the reward of a right one.

## What it does
Looks at reward functions of TRL and at verl's `compute_score` for an `except` whose body gives a reward of 1 or more:
it returns it, assigns it to the reward, or appends it to the rewards. Where the rows of a GRPO or RLOO trainer are
next to the script, it also calls its reward functions with right, wrong and empty answers of rows whose references
look different. It is an error where some rows pay the wrong or the empty ones in full, and others the right ones alone:
there the reference was not read.

## Why it is bad
Graders fail on answers that are broken in an unusual way: unbalanced brackets, huge numbers, a text that does not
parse. Such answers then count like right ones, and in a group they get the positive advantage. The policy learns to
break the grader, and the mean reward looks better than the model.

## Example
```python
from math_verify import parse, verify
from trl import GRPOTrainer

def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, truth in zip(completions, solution):
        try:
            reward = float(verify(parse(truth), parse(completion)))
        except Exception as error:
            print("verify failed:", error)
            reward = 1.0
        rewards.append(reward)
    return rewards

trainer = GRPOTrainer(model="model", reward_funcs=accuracy, train_dataset=rows)
trainer.train()
```

## Use instead
```python
from math_verify import parse, verify
from trl import GRPOTrainer

def accuracy(completions, solution, **kwargs):
    rewards = []
    for completion, truth in zip(completions, solution):
        try:
            reward = float(verify(parse(truth), parse(completion)))
        except Exception as error:
            print("verify failed:", error)
            reward = None
        rewards.append(reward)
    return rewards

trainer = GRPOTrainer(model="model", reward_funcs=accuracy, train_dataset=rows)
trainer.train()
```

## Fix safety
TRL leaves a reward of None out. With 0 the answer counts as wrong, which is right if only the answer can make the
grader fail, and wrong if the reference can.

## References
- huggingface/open-r1#159 (errors of math_verify get 1), huggingface/open-r1#158, NVIDIA-NeMo/RL#431
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.reward_functions_rejecting_all_references import TRAINERS
from truetune.checks.source.evidence.rewards_for_unreadable_references import (
    rewards_for_unreadable_references,
)
from truetune.checks.source.evidence.rewards_that_grow_with_a_distance import scoring_functions
from truetune.source.parsed_source_file import Module

FULL_REWARD = 1
"""Less may be meant as the middle between right and wrong"""
REWARD_WORDS = ("reward", "score", "acc", "correct")
"""Parts of the names that hold rewards"""


def _reward_functions(module: Module) -> Iterator[ast.AST]:
    """The functions of a file that give rewards."""
    yield from scoring_functions(module)


class FailedGradingIsRewarded(SourceRule):
    code = "SRC541"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "warning"
    looks_at = CodePlaces("functions that give rewards", _reward_functions)

    def findings(self) -> Iterator[Finding]:
        """Findings on handlers of exceptions that give a reward, and on rows that pay every answer."""
        told = set[ast.AST]()
        for function in scoring_functions(self.subject):
            for handler in ast.walk(function):
                if not isinstance(handler, ast.ExceptHandler):
                    continue
                paid = next(_full_rewards(handler), None)
                if paid is not None:
                    told.add(function)
                    yield self.finding(
                        f"{function.name} gives a reward of {ast.unparse(paid)} to an answer on which grading fails:"
                        " the policy is paid for breaking the grader",
                        "give None (TRL leaves the answer out), or 0 if only the answer can make the grader fail",
                        cases=[case_of_node(self.subject, paid)],
                    )
        yield from self._findings_on_rows_paying_every_answer(told)

    def _findings_on_rows_paying_every_answer(self, told: set[ast.AST]) -> Iterator[Finding]:
        """Findings on functions, of which nothing is told yet, that pay every answer of some rows."""
        if not any(self.subject.calls(*TRAINERS)):
            return
        for found in rewards_for_unreadable_references(self.subject):
            function = found.function
            if function.definition in told:
                continue
            cases = [case_of_node(function.home, function.definition)]
            if found.reference:
                place = found.place
                cases.append(
                    Case(
                        f"wrong or empty answers are paid: the reference is {found.reference!r}",
                        file=str(place.file) if place else None,
                        line=place.line if place else None,
                    )
                )
            yield self.finding(
                f"{function.name} gives wrong or empty answers the full reward of {found.pay:g} in {found.paid:,} of"
                f" {found.rows:,} tried rows: it can't read their references",
                "give None for a row whose reference can't be read (TRL leaves it out), or drop such rows before the"
                " training",
                severity="error",
                cases=cases,
                count=found.paid,
                total=found.rows,
            )


def _full_rewards(handler: ast.ExceptHandler) -> Iterator[ast.expr]:
    """The full rewards that a handler returns, appends or assigns."""
    for node in (part for statement in handler.body for part in ast.walk(statement)):
        value = _given_reward(node)
        if isinstance(value, ast.Constant) and _is_full_reward(value.value):
            yield value


def _given_reward(node: ast.AST) -> ast.expr | None:
    """The reward that a node gives; None if it gives none."""
    if isinstance(node, ast.Return):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args[0] if node.func.attr == "append" and len(node.args) == 1 else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        name = ast.unparse(node.targets[0]).casefold()
        return node.value if any(word in name for word in REWARD_WORDS) else None
    return None


def _is_full_reward(value: object) -> bool:
    """Is a value a number of 1 or more?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= FULL_REWARD
