"""Tells what batches without any label do to a training loop: the mean over no label is nan.

`CrossEntropyLoss` divides the sum of the losses by the number of labels, so that a batch without one gives 0 / 0. A
step by its gradient makes every weight nan. Trainers that divide by the labels of all accumulated batches are not
meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from truetune.source.parsed_source_file import Module

GUARDS = re.compile(
    r"isnan|isfinite|isinf|nan_to_num|anomaly|!=\s*-\s*100|ne\(-\s*100|!=\s*(?:IGNORE|ignore)|reduction\s*=|clamp|"
    r"num_items|\.any\(\)|\.all\(\)"
)
"""What a script has that leaves such batches out, or computes its loss in another way"""
DIVISION_GUARDS = re.compile(
    r"isnan|isfinite|isinf|nan_to_num|anomaly|clamp|clip\(|\bmax\(|maximum|\.any\(|\beps\b|\+\s*1e-|\bwhere\(|num_items"
    r"|(?:>=?|==|!=)\s*[01]\b|if\s+(?:not\s+)?\w+(?:\[[^\]]{1,40}\])?\.sum\("
)
"""What a script has that keeps the sum of a mask above zero, or leaves batches out where it is zero"""
MIN_BATCHES = 1.0
"""Batches without a label that an epoch has on average: at half, every other epoch has one"""
IS_NAN = "so the loss is nan"
"""How a message says that these rows spoil the run"""
EFFECT = "the mean over no label is nan, and a step by its gradient makes all weights nan"


REMEDY = (
    "where a limit cuts the answer off, cut the prompt instead (prompt[: limit - len(answer)]) or raise the limit; or"
    " leave these rows out; neither a lower learning rate nor another precision helps"
)


GUARD_THE_DIVISION = "and keep the divisor above zero: mask.sum().clamp(min=1)"


def may_skip_unlabelled_batches(texts: Iterable[str]) -> bool:
    """May a script, by its words, leave out batches without a label, or average its loss otherwise?"""
    return any(GUARDS.search(text) for text in texts)


def divides_by_sum_of_mask(module: Module) -> bool:
    """Does a file divide a sum of losses by the sum of their weights: `(loss * mask).sum() / mask.sum()`?"""
    return any(
        isinstance(node.op, ast.Div)
        and _names_in_sum(module, node.right)
        and not _names_in_sum(module, node.right).isdisjoint(_names_in_sum(module, node.left))
        for node in module.nodes(ast.BinOp)
    )


def _names_in_sum(module: Module, node: ast.expr) -> set[str]:
    """The names in what a sum adds up, `x.sum()` or `torch.sum(x)`, also behind a name; empty for anything else."""
    for given in (node, *(origin.node for origin in module.flow.origins(node))):
        if not isinstance(given, ast.Call):
            continue
        is_method = isinstance(given.func, ast.Attribute) and given.func.attr == "sum"
        if is_method:
            return {one.id for one in ast.walk(given) if isinstance(one, ast.Name)} - {"torch"}
    return set()


def may_guard_mask_division(texts: Iterable[str]) -> bool:
    """May a script, by its words, keep the sum of a mask above zero, or leave out batches in which
    it is zero?
    """
    return any(DIVISION_GUARDS.search(text) for text in texts)


def expected_batches_without_label(
    rows: int, without_label: int, rows_at_once: int | None
) -> float:
    """The batches of one epoch in random order in which no row has a label; 0 where their size is not known."""
    if not rows or not rows_at_once or rows_at_once < 1:
        return 0.0
    return float(rows / rows_at_once * (without_label / rows) ** rows_at_once)


def expects_batch_without_label(rows: int, without_label: int, rows_at_once: int | None) -> bool:
    """Is at least one batch without any label expected in each epoch?"""
    return expected_batches_without_label(rows, without_label, rows_at_once) >= MIN_BATCHES


def describe_loss_of_unlabelled_batches(rows_at_once: int | None) -> str:
    """What rows without a label do to the loss at this batch size, as the end of a message."""
    one, several = "each of them is a batch", "whole batches are of these alone"
    return f"{one if rows_at_once == 1 else several}, {IS_NAN}"
