"""Says whether each pass of a loop has come by one of some calls when it ends.

How it works: from statement to statement, with the set of states in which a pass may get there;
each arm of a branch is gone through, and `continue` ends a pass. Passes that end the loop or the
function (`break`, `return`, `raise`) do not count: no later row gets another place.

The trade-off: a loop inside of the loop is passed over, and a `try` body is taken to fail before
its first call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

States = frozenset[bool]
"""Has a pass come by one of the calls? Both, where that depends on its way"""
BEFORE: States = frozenset((False,))
NOWHERE: States = frozenset()


class PassEnds(NamedTuple):
    """The states in which passes get behind statements, or end there."""

    behind: States
    at_continue: States = NOWHERE

    def all_end_states(self) -> States:
        """The states in which passes end, where the statements are the whole body."""
        return self.behind | self.at_continue


def end_states_of_body(
    body: Sequence[ast.stmt], calls: frozenset[int], before: States = BEFORE
) -> PassEnds:
    """How passes through statements end; `calls` are the ids of the nodes that are looked for."""
    behind, at_continue = before, NOWHERE
    for statement in body:
        if not behind:
            break
        ends = _end_states_of_statement(statement, calls, behind)
        behind = ends.behind
        at_continue |= ends.at_continue
    return PassEnds(behind, at_continue)


def _end_states_of_statement(node: ast.stmt, calls: frozenset[int], before: States) -> PassEnds:
    """How passes through one statement end."""
    if isinstance(node, ast.Continue):
        return PassEnds(NOWHERE, before)
    if isinstance(node, ast.Break | ast.Return | ast.Raise):
        return PassEnds(NOWHERE)
    if isinstance(node, ast.If):
        return _joined_end_states(
            end_states_of_body(arm, calls, before) for arm in (node.body, node.orelse)
        )
    if isinstance(node, ast.Match):
        return _end_states_of_match(node, calls, before)
    if isinstance(node, ast.With | ast.AsyncWith):
        return end_states_of_body(node.body, calls, before)
    if isinstance(node, ast.Try | ast.TryStar):
        return _end_states_of_try(node, calls, before)
    if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.ClassDef):
        return PassEnds(before)
    is_call = any(id(part) in calls for part in ast.walk(node))
    return PassEnds(frozenset((True,)) if is_call else before)


def _end_states_of_match(node: ast.Match, calls: frozenset[int], before: States) -> PassEnds:
    """How passes through the cases end; none may fit, where no case takes all."""
    arms = [end_states_of_body(case.body, calls, before) for case in node.cases]
    last = node.cases[-1]
    takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
    if not takes_all or last.guard is not None:
        arms.append(PassEnds(before))
    return _joined_end_states(arms)


def _end_states_of_try(
    node: ast.Try | ast.TryStar, calls: frozenset[int], before: States
) -> PassEnds:
    """How passes end with and without an error."""
    without_error = end_states_of_body([*node.body, *node.orelse], calls, before)
    handlers = [end_states_of_body(handler.body, calls, before) for handler in node.handlers]
    ends = _joined_end_states([without_error, *handlers])
    if not node.finalbody:
        return ends
    finally_done = end_states_of_body(node.finalbody, calls, ends.behind or before)
    return PassEnds(
        finally_done.behind if ends.behind else NOWHERE, ends.at_continue | finally_done.at_continue
    )


def _joined_end_states(arms: Iterable[PassEnds]) -> PassEnds:
    """The ends of several ways together."""
    behind, at_continue = NOWHERE, NOWHERE
    for arm in arms:
        behind |= arm.behind
        at_continue |= arm.at_continue
    return PassEnds(behind, at_continue)
