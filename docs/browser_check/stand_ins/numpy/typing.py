"""Types for annotations; nothing checks them in the browser."""

from __future__ import annotations

from typing import Any


class NDArray:
    """An array of a type of elements."""

    def __class_getitem__(cls, dtype: Any) -> type[NDArray]:
        return cls


ArrayLike = Any
