"""Figure: a small plot that shows a finding, drawn on the terminal and in the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a figure."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    """As long as `x`; NaN where there is no value"""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis that matters."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines over one x axis (the step)."""

    title: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    log: bool = False
    """The y axis is logarithmic"""
