"""An answer on which the grader fails gets the reward of a right one.

## What it does
Looks at reward functions of TRL and at verl's `compute_score` for code that gives a reward of 1 or more if the grader
fails: in an `except`, or in the branch for a reference that could not be read (`if not gold_parsed:`). Where the rows
of a GRPO or RLOO trainer are next to the script, it also calls its reward functions with right, wrong and empty
answers of rows whose references look different. It is an error where some rows pay the wrong or the empty ones in full,
and others the right ones alone: there the reference was not read.

## Why it is bad
Graders fail on answers that are broken in an unusual way: unbalanced brackets, huge numbers, a text that does not
parse. Such answers then count like right ones, and in a group they get the positive advantage. The policy learns to
break the grader, and the mean reward looks better than the model. A row whose reference can't be read pays every
answer: nothing is learned from it, and it raises the mean reward.

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
- huggingface/open-r1#159 (errors of math_verify get 1), huggingface/open-r1#158, NVIDIA-NeMo/RL#431,
  huggingface/open-r1#293 (references that can't be parsed)
"""

from __future__ import annotations

import ast
import re
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

GOLD = re.compile(r"gold|truth|solution|refer|expected|target|label|\bsol\b", re.I)
"""Names of what an answer is compared with"""
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
        """Findings on rewards for answers that could not be graded."""
        reported: set[ast.AST] = set()
        for function in scoring_functions(self.subject):
            for finding in self._findings_on_code(function):
                reported.add(function)
                yield finding
        yield from self._findings_on_rows_paying_every_answer(reported)

    def _findings_on_code(self, function: ast.FunctionDef) -> Iterator[Finding]:
        """Findings on handlers of exceptions, and on branches for references that could not be read."""
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler):
                paid = next(_full_rewards(node.body), None)
                what = (
                    "an answer on which grading fails: the policy is paid for breaking the grader"
                )
            else:
                paid = next(_full_rewards(_branch_without_gold(node)), None)
                what = (
                    "every answer of a row whose reference can't be read: wrong ones count as right"
                )
            if paid is not None:
                yield self.finding(
                    f"{function.name} gives a reward of {ast.unparse(paid)} to {what}",
                    "give None (TRL leaves the answer out), or 0 if only the answer can make the grader fail",
                    cases=[case_of_node(self.subject, paid)],
                )

    def _findings_on_rows_paying_every_answer(self, reported: set[ast.AST]) -> Iterator[Finding]:
        """Findings on functions, not reported yet, that pay every answer of some rows."""
        if not any(self.subject.calls(*TRAINERS)):
            return
        for every_answer_paid in rewards_for_unreadable_references(self.subject):
            function = every_answer_paid.function
            if function.definition in reported:
                continue
            cases = [case_of_node(function.home, function.definition)]
            if every_answer_paid.reference:
                place = every_answer_paid.place
                cases.append(
                    Case(
                        f"wrong or empty answers are paid: the reference is {every_answer_paid.reference!r}",
                        file=str(place.file) if place else None,
                        line=place.line if place else None,
                    )
                )
            yield self.finding(
                f"{function.name} gives wrong or empty answers the full reward of {every_answer_paid.pay:g} in"
                f" {every_answer_paid.paid:,} of {every_answer_paid.rows:,} tried rows: it can't read their references",
                "give None for a row whose reference can't be read (TRL leaves it out), or drop such rows before the"
                " training",
                severity="error",
                cases=cases,
                count=every_answer_paid.paid,
                total=every_answer_paid.rows,
            )


def _branch_without_gold(node: ast.AST) -> list[ast.stmt]:
    """The branch for a missing reference: of `if not gold:`, `if len(gold) != 0: ... else:`; else none."""
    if not isinstance(node, ast.If):
        return []
    tested, is_missing_where_true = _tested_for_nothing(node.test)
    if isinstance(tested, ast.Call) and ast.unparse(tested.func) in ("len", "bool") and tested.args:
        tested = tested.args[0]
    if not isinstance(tested, ast.Name) or not GOLD.search(tested.id):
        return []
    branch = node.body if is_missing_where_true else node.orelse
    return [one for one in branch if not isinstance(one, ast.If)]


def _tested_for_nothing(test: ast.expr) -> tuple[ast.expr | None, bool]:
    """What a condition tests for being there, and whether the condition holds where it is missing.

    None where it compares with something else than nothing.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        tested, is_missing_where_true = _tested_for_nothing(test.operand)
        return tested, not is_missing_where_true
    if not isinstance(test, ast.Compare):
        return test, False
    if len(test.ops) != 1 or not _is_nothing(test.comparators[0]):
        return None, False
    if isinstance(test.ops[0], ast.Is | ast.Eq):
        return test.left, True
    is_other = isinstance(test.ops[0], ast.IsNot | ast.NotEq | ast.Gt)
    return (test.left if is_other else None), False


def _is_nothing(node: ast.expr) -> bool:
    """Is an expression None, 0, or an empty text or list?"""
    return ast.unparse(node) in ("None", "0", "''", "[]")


def _full_rewards(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The full rewards that some statements return, append or assign."""
    for node in (part for statement in body for part in ast.walk(statement)):
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
