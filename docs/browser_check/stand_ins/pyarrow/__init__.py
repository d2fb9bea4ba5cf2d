"""A placeholder: the page reads JSON alone, and no package registry has PyArrow for a browser."""

from __future__ import annotations

from typing import NoReturn


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"pyarrow.{name}: tables are not read in the browser")
