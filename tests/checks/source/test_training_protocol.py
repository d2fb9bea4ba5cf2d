"""The protocols of training code: each order, broken and right, and spellings that change nothing."""

from __future__ import annotations

import re

import pytest

from tests.checks.source.protocol_scripts import (
    ADAPT,
    CLEAR,
    CLIP,
    HEAD,
    KBIT,
    LOOP,
    OPTIMIZER,
    SCALED,
    SCALER,
    SCRIPTS,
    STEP,
    TRAIN,
    UNSCALE,
    UPDATE,
    loop,
    script,
)
from truetune.checks.source.evidence.training_protocol.all_protocols import ALL_PROTOCOLS
from truetune.checks.source.evidence.training_protocol.follow_object_states import broken_orders
from truetune.source.parsed_source_file import Module, parse_module

ORDERS = {order.name for protocol in ALL_PROTOCOLS for order in protocol.broken_orders}


def orders_of(*modules: Module) -> set[str]:
    """The names of the orders that are broken in some files."""
    return {place.order.name for one in modules for place in broken_orders(one, ALL_PROTOCOLS)}


def orders_of_text(text: str) -> set[str]:
    """The names of the orders that a script breaks."""
    return orders_of(parse_module(text, "train.py"))


def test_each_order_has_its_scripts() -> None:
    """An order without a script of both kinds would be in the table unproved."""
    assert set(SCRIPTS) == ORDERS
    assert len(ORDERS) >= 20


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_broken_and_right_order(name: str) -> None:
    """The broken order is named, alone, and the right one is not."""
    broken, right = SCRIPTS[name]
    assert orders_of_text(broken) == {name}
    assert orders_of_text(right) == set()
