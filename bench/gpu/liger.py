"""Liger's kernels on one model, and on no other.

Liger replaces functions in the module of the model's class, not only on the model that it is given: without the way
back, every later model of the process would use its rotary embedding too, and be compared with itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_liger_installed() -> bool:
    """As transformers sees it."""
    from transformers.utils.import_utils import is_liger_kernel_available

    return bool(is_liger_kernel_available())


@contextmanager
def liger_kernels(model: Any) -> Iterator[None]:
    """While this lasts, a model has the kernels that `truetune train` gives it: all but those of the loss."""
    from transformers.integrations.liger import apply_liger_kernel

    module = vars(sys.modules[type(model).__module__])
    before = dict(module)
    try:
        apply_liger_kernel(model, {"fused_linear_cross_entropy": False, "cross_entropy": False})
        yield
    finally:
        module.update(before)
