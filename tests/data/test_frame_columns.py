"""Columns of a frame give what pandas gives, or nothing where it is not known."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pandas
import pytest

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import COLUMN
from truetune.data.script_rows.compute_on_dataframe_columns import (
    call_column_method,
    operate_on_columns,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import plain_to_value
from truetune.source.symbolic_execution.values_of_run import Constant, Sequence, Value

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "+": operator.add,
    "*": operator.mul,
}
NUMBERS = [3, -1, 0, 7]
HOLES = ["a", None, "b", "a"]


def column_of(items: list[Any]) -> Sequence:
    return Sequence(COLUMN, [plain_to_value(one) for one in items])


def items_of(column: Value | None) -> list[Any] | None:
    return [constant_of(one) for one in column.items] if isinstance(column, Sequence) else None


def no_call(function: Value, args: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
    raise AssertionError("no function is called here")


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("other", [2, NUMBERS[::-1]])
def test_operators_on_numbers(sign: str, other: Any) -> None:
    wanted = SIGNS[sign](
        pandas.Series(NUMBERS), pandas.Series(other) if isinstance(other, list) else other
    )
    operand = column_of(other) if isinstance(other, list) else Constant(other)
    assert items_of(operate_on_columns(sign, (column_of(NUMBERS), operand))) == wanted.tolist()


@pytest.mark.parametrize("sign", ["==", "!="])
@pytest.mark.parametrize("other", ["a", None, ["a", None, "c", "a"]])
def test_missing_values_are_unequal_to_all(sign: str, other: Any) -> None:
    holes = pandas.Series(HOLES, dtype=object)
    wanted = SIGNS[sign](
        holes, pandas.Series(other, dtype=object) if isinstance(other, list) else other
    )
    operand = column_of(other) if isinstance(other, list) else Constant(other)
    assert items_of(operate_on_columns(sign, (column_of(HOLES), operand))) == wanted.tolist()


@pytest.mark.parametrize(
    ("method", "given"), [("isna", []), ("notnull", []), ("isin", [["a"]]), ("fillna", ["z"])]
)
def test_methods_on_missing_values(method: str, given: list[Any]) -> None:
    wanted = getattr(pandas.Series(HOLES, dtype=object), method)(*given).tolist()
    args = tuple(plain_to_value(one) for one in given)
    assert items_of(call_column_method(column_of(HOLES), method, args, no_call)) == wanted


@pytest.mark.parametrize("method", ["to_frame", "sort_index", "sort_values", "cumsum"])
def test_other_methods_are_not_known(method: str) -> None:
    assert call_column_method(column_of(NUMBERS), method, (), no_call) is None
