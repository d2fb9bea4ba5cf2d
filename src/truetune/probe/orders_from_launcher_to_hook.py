"""What a launcher orders the hook to do: the JSON in the environment variable TRUETUNE_ORDERS.

`truetune.cli.run_training_with_audit_command` and `rehearse_command` write the first part,
`truetune.auditing.run_with_hook` adds the second, and tests the third. `truetune.rehearse(trainer)` gives the first
part to `rehearse_run` directly, without a hook. A new key needs no other place than this: the launcher's dictionary
is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class HookOrders(TypedDict, total=False):
    """All keys; those that are not given have the default of whoever reads them."""

    mode: str
    """`audit` or `rehearse`: the second says that the process is our own and ends after the rehearsal"""
    batches: int
    """Micro-batches that are recorded"""
    laws: str | Sequence[str]
    """quick, all, none, or names of laws"""
    canary: bool
    """Send a marked row through the preparation, too?"""
    keys: dict[str, str | int] | None
    """Our names of a batch's tensors -> the user's (`truetune.probe.recognise_ids_labels_and_mask`)"""
    rows: int
    """Rows that a rehearsal memorises"""
    mutate: bool | Sequence[str]
    """Are faults put into their batch? Or the names of these"""

    folder: str
    """Takes the records, and what processes tell of themselves by files"""
    address: str | tuple[str, int]
    """Of the parent's listener: the path of a Unix socket, or host and port"""
    authkey: str
    """The key for it, in hexadecimal digits"""

    in_place: bool
    """Look in the process itself, even if a copy of it could be made"""
    seconds: float
    """In the place of `audit_time_limits.AUDIT_SECONDS`"""
    verdict_seconds: float
    """In the place of `audit_time_limits.VERDICT_SECONDS`"""
