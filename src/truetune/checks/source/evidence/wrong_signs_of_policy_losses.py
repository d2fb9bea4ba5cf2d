"""Finds terms of an own policy loss that have the wrong sign: the policy gradient, the entropy, the KL divergence, the
clipping.

How it works: what `backward()` is called on is written as a sum of terms with signs. A product of a log-probability or
a ratio with an advantage or a reward has to have a minus, an entropy a minus, a KL divergence to the reference a plus;
the clipped objective is the smaller of two products, or the larger of two with a minus.

The trade-off: a term is told by the words in it. An entropy counts only where the script shows how it is computed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.expressions_as_signed_sums_of_terms import (
    SignedTerm,
    has_word,
    names_and_texts_in_expression,
    signed_terms,
)
from truetune.source.parsed_source_file import Module

ADVANTAGE = re.compile(
    r"(?<![a-z])(?:advantages?|adv|advs|rewards?|returns|reinforce)(?![a-z])", re.I
)
LOG_PROBABILITY = re.compile(r"log_?probs?\b|log_?ps?\b|logprobs?|log_?pi\b|^ratio|_ratio", re.I)
CROSS_ENTROPY = re.compile(r"cross_entropy|nll|\bce\b|ce_loss|neg_log|neglog", re.I)
ENTROPY = re.compile(r"(?:^|_)entropy$|(?:^|_)entropies$|^ent$|^entropy_(?:mean|term|bonus)$", re.I)
DIVERGENCE = re.compile(r"^(?:mean_|per_token_|approx_)?kl(?:_div|_mean|_term|_penalty|s)?$", re.I)
SOFTMAXES = re.compile(r"exp|softmax|probs?|\bp\b", re.I)
FRAMES = re.compile(r"maximize\s*=\s*True|gradient_ascent|grad(?:ient)?_?reversal|unlearn", re.I)
"""Files that mean to climb"""
MAX_STEPS = 6


class WrongSign(NamedTuple):
    """A term of a loss that has the wrong sign."""

    node: ast.AST
    kind: str
    """`policy`, `entropy`, `divergence` or `clipping`"""
    loss: ast.AST
    """What `backward()` is called on"""


def backward_losses(module: Module) -> Iterator[ast.expr]:
    """The expressions that a file calls `backward` on, or gives to an engine's."""
    for call in module.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
            continue
        yield call.args[0] if call.args else call.func.value
    for function in module.nodes(ast.FunctionDef):
        if function.name in ("training_step", "compute_loss"):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield node.value


def wrong_signs(module: Module) -> Iterator[WrongSign]:
    """The terms of own policy losses that have the wrong sign, each place and kind once."""
    if FRAMES.search(module.text) or not ADVANTAGE.search(module.text):
        return
    seen: set[tuple[ast.AST, str]] = set()
    for loss in backward_losses(module):
        for origin in module.flow.origins(loss):
            if not isinstance(origin.node, ast.expr) or origin.path:
                continue
            for node, kind in _faults_of_loss(module, origin.node):
                if (origin.node, kind) not in seen and module.holds(node):
                    seen.add((origin.node, kind))
                    yield WrongSign(node, kind, loss)


def _faults_of_loss(module: Module, loss: ast.expr) -> Iterator[tuple[ast.AST, str]]:
    """What is wrong with the terms of a loss, each with its place; nothing where it is no policy loss."""
    terms = signed_terms(module, loss, _is_policy_loss_quantity)
    if any(_is_policy_term(term) for term in terms):
        for term in terms:
            yield from _faults_of_term(module, term)


def _is_policy_loss_quantity(node: ast.expr) -> bool:
    """Is it a quantity of a policy loss, by its name or key, or an advantage over a baseline, or a ratio?"""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        words = names_and_texts_in_expression(node)[-1:]
        return any(
            has_word(words, one) for one in (ADVANTAGE, LOG_PROBABILITY, ENTROPY, DIVERGENCE)
        ) and not has_word(words, re.compile("loss|objective|surr", re.I))
    return _is_advantage_over_baseline(node) or _is_ratio(node)


def _is_advantage_over_baseline(node: ast.expr) -> bool:
    """Is it a reward less its baseline, or in units of its deviation: `(rewards - rewards.mean()) / rewards.std()`?"""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub | ast.Div):
        return False
    words = names_and_texts_in_expression(node.left)
    return has_word(words, ADVANTAGE) and not has_word(words, LOG_PROBABILITY)


def _is_ratio(node: ast.expr) -> bool:
    """Is it the difference of two log-probabilities, or the exponential of one?"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        sides = (node.left, node.right)
        return all(
            has_word(names_and_texts_in_expression(one), LOG_PROBABILITY)
            and not has_word(names_and_texts_in_expression(one), ADVANTAGE)
            for one in sides
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    words = names_and_texts_in_expression(node)
    is_exponential = node.func.attr == "exp" and not has_word(words, ADVANTAGE)
    return is_exponential and has_word(words, LOG_PROBABILITY)


def _is_policy_term(term: SignedTerm) -> bool:
    """Is a term an advantage times a log-probability or a ratio?"""
    advantages = [
        one for one in term.factors if has_word(names_and_texts_in_expression(one), ADVANTAGE)
    ]
    others = [one for one in term.factors if one not in advantages]
    return bool(advantages) and any(
        has_word(names_and_texts_in_expression(one), LOG_PROBABILITY) for one in others
    )


def _faults_of_term(module: Module, term: SignedTerm) -> Iterator[tuple[ast.AST, str]]:
    """What is wrong with a term of a loss, each with its place."""
    if _is_policy_term(term):
        yield from _faults_of_policy_term(term)
        return
    words = [word for one in term.factors for word in names_and_texts_in_expression(one)[-1:]]
    if has_word(words, ENTROPY) and term.sign * _sign_of_entropy(module, term) > 0:
        yield _factor_named_like(term, ENTROPY), "entropy"
    if has_word(words, DIVERGENCE) and term.sign * _sign_of_divergence(module, term) < 0:
        yield _factor_named_like(term, DIVERGENCE), "divergence"


def _faults_of_policy_term(term: SignedTerm) -> Iterator[tuple[ast.AST, str]]:
    """What is wrong with an advantage times a log-probability or a ratio: its sign, or else its clipping."""
    if has_word(term.names_and_texts_in_factors, CROSS_ENTROPY):
        return
    if term.sign > 0:
        yield term.factors[0], "policy"
    elif any("clamp" in word or "clip" in word for word in term.names_and_texts_in_factors):
        yield from ((node, "clipping") for node in _extremes_of_wrong_direction(term))


def _extremes_of_wrong_direction(term: SignedTerm) -> Iterator[ast.AST]:
    """Each `min` and `max` around a term by which the larger of two objectives counts."""
    for name, sign, node in term.extremes:
        # In a loss the objective has a minus: the extreme of the objective is the smaller one.
        if (name == "max" and sign < 0) or (name == "min" and sign > 0):
            yield node


def _factor_named_like(term: SignedTerm, pattern: re.Pattern[str]) -> ast.expr:
    """The factor of a term whose name is like a pattern."""
    return next(
        one for one in term.factors if has_word(names_and_texts_in_expression(one)[-1:], pattern)
    )


def _sign_of_entropy(module: Module, term: SignedTerm) -> int:
    """1 where an entropy is computed as one, -1 where its minus is left out; 0 where it is not seen."""
    signs = set()
    for node in _expressions_name_is_made_of(module, _factor_named_like(term, ENTROPY), MAX_STEPS):
        for part in signed_terms(module, node, _is_log_or_entropy_call):
            words = part.names_and_texts_in_factors
            if any(_is_entropy_call(one) for one in part.factors):
                signs.add(part.sign)
            elif has_word(words, LOG_PROBABILITY) and len(part.factors) > 1:
                signs.add(-part.sign)
    return signs.pop() if len(signs) == 1 else 0


def _is_log_or_entropy_call(node: ast.expr) -> bool:
    """Is it a call of `entropy()`, or something that is called a log-probability?"""
    if _is_entropy_call(node):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("log", "exp", "log_softmax", "softmax")
    return isinstance(node, ast.Name) and has_word([node.id], LOG_PROBABILITY)


def _is_entropy_call(node: ast.expr) -> bool:
    """Is it a call of a distribution's `entropy()`?"""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "entropy"


def _sign_of_divergence(module: Module, term: SignedTerm) -> int:
    """1 where a divergence is computed as one: log-probabilities minus the reference's, k3, `kl_div`; 0 otherwise."""
    for node in _expressions_name_is_made_of(
        module, _factor_named_like(term, DIVERGENCE), MAX_STEPS
    ):
        text = ast.unparse(node)
        if "kl_div" in text or re.search(r"-\s*\w*(?:log_?ratio|delta|diff)\w*\s*-\s*1", text):
            return 1
        if re.search(r"exp\(.*-\s*1\b|log_?p\w*\s*-\s*[\w\[\]'\".]*ref", text):
            return 1
    return 0


def _expressions_name_is_made_of(module: Module, node: ast.expr, steps: int) -> Iterator[ast.expr]:
    """The expressions that a name is made of, one behind the other."""
    for binding in module.scopes.bindings_that_reach(node) if isinstance(node, ast.Name) else ():
        if binding.kind == "value" and isinstance(binding.value, ast.expr) and steps > 0:
            yield binding.value
            for name in ast.walk(binding.value):
                if isinstance(name, ast.Name) and name.id == getattr(node, "id", ""):
                    yield from _expressions_name_is_made_of(module, name, steps - 1)
