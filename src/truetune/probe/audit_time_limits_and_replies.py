"""How long an audit inside a run may take, and what it may answer.

Apart from `audit_session`, which is imported when a run is about to train: the hooks need these figures from the start
of each process, and a program that never trains pays for nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from truetune.probe.contain_own_failures_in_user_program import STEP_SECONDS

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders

GO, STOP = "go", "stop"
# For batches, laws and canary together. Chosen, not measured: after 120 s no further quick law begins
# (`laws.QUICK_LAWS_SECONDS`), and a single one takes minutes on a large model on a CPU.
AUDIT_SECONDS = 600.0
# For the parent's verdict: it waits 300 s for the other processes of a run (`process_listener.MAX_WAIT_S`), and then
# judges them all.
VERDICT_SECONDS = 900.0


@dataclass(frozen=True)
class Limits:
    """Seconds after which a part of the audit is abandoned, and the run continues."""

    step: float
    """For what takes milliseconds: noting a data set, finding the trainer"""
    audit: float
    verdict: float

    @classmethod
    def of(cls, orders: HookOrders) -> Limits:
        """The limits that the orders name (`seconds`, `verdict_seconds`), else the usual ones."""
        audit = float(orders.get("seconds") or AUDIT_SECONDS)
        return cls(
            min(audit, STEP_SECONDS), audit, float(orders.get("verdict_seconds") or VERDICT_SECONDS)
        )

    @property
    def whole(self) -> float:
        """Seconds of a whole audit: from its beginning to the last moment at which the run continues."""
        return self.audit + self.verdict + 2 * self.step
