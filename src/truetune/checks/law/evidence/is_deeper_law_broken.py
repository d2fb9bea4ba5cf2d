"""Tells whether deeper laws are broken, so that one fault that breaks several is reported once.

A rule stays silent where a law that lies deeper is broken, so that one fault is told once, by the rule that names its
cause. The price: a second, separate fault is told only after the first is fixed.
"""

from __future__ import annotations

from truetune.auditing.audit import Audit

FORWARD_LAWS = (
    "padding-invariance",
    "batch-composition",
    "packing-isolation",
    "packed-alone",
    "activation-range",
)
"""Laws without which a gradient can't be the same"""


def any_law_broken(subject: Audit, *laws: str) -> bool:
    """Was one of these laws measured, and is broken?

    Args:
        subject: the run, with the outcome of each law that was measured.
        laws: their names, in kebab-case.

    Returns:
        False where none of them was measured: a law that is not known to be broken explains nothing.
    """
    outcomes = [subject.laws.get(name, {}) for name in laws]
    # `not <=` instead of `>`: a value of nan is a broken law.
    return any(
        not outcome["value"] <= outcome["tolerance"] for outcome in outcomes if "value" in outcome
    )
