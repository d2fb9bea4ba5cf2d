"""How long an audit inside a run may take, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truetune.probe.failure_boundary import STEP_SECONDS

GO, STOP = "go", "stop"
# For batches, laws and canary together. Quick laws begin none after 120 s; a large model on a CPU takes minutes.
AUDIT_SECONDS = 600.0
# For the parent's verdict: it waits 300 s for the other processes of a run, and then judges them all.
VERDICT_SECONDS = 900.0


@dataclass(frozen=True)
class Limits:
    """Seconds after which a part of the audit is abandoned, and the run continues."""

    step: float
    """For what takes milliseconds: noting a data set, finding the trainer"""
    audit: float
    verdict: float

    @classmethod
    def of(cls, orders: dict[str, Any]) -> Limits:
        """Those that the orders name (`seconds`, `verdict_seconds`), else the usual ones."""
        audit = float(orders.get("seconds") or AUDIT_SECONDS)
        return cls(
            min(audit, STEP_SECONDS), audit, float(orders.get("verdict_seconds") or VERDICT_SECONDS)
        )

    @property
    def whole(self) -> float:
        """From the beginning of an audit to the last moment at which the run continues."""
        return self.audit + self.verdict + 2 * self.step
