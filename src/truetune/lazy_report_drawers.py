"""Loads the functions that draw reports only when they are called: reports are data, and do not
know who draws them.

`truetune.report` draws, and imports the types of the reports. If the reports imported it as well, neither could be
read, tested or loaded without the other. So the functions that draw are named here, and loaded when something is drawn
for the first time: a check whose result is only asked for its exit code loads no terminal and no page.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

Drawing = Literal[
    "report as text", "report as page", "report as file", "plan as text", "ladder as text"
]

_DRAWERS: dict[Drawing, tuple[str, str]] = {
    "report as text": ("truetune.report.report_terminal", "report_as_text"),
    "report as page": ("truetune.report.page", "notebook_html"),
    "report as file": (
        "truetune.report.write_report_by_suffix",
        "write_report_whole_or_not_at_all",
    ),
    "plan as text": ("truetune.report.memory_plan_terminal", "plan_as_text"),
    "ladder as text": ("truetune.report.adapter_effect_ladder_terminal", "ladder_as_text"),
}


def load_drawer(drawing: Drawing) -> Callable[..., Any]:
    """Load the function that makes a drawing, with what it needs."""
    module, function = _DRAWERS[drawing]
    loaded: Callable[..., Any] = getattr(import_module(module), function)
    return loaded
