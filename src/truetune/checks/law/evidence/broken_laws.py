"""One fault breaks several laws: which of the others are broken."""

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
    """Was one of these laws measured, and is broken?"""
    measured = [law for name in laws if "value" in (law := subject.laws.get(name, {}))]
    return any(not law["value"] <= law["tolerance"] for law in measured)
