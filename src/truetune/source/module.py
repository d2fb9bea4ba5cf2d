"""Module: one Python file, or the code cells of one notebook."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """Parsed source."""

    path: str
    text: str
    tree: ast.Module
