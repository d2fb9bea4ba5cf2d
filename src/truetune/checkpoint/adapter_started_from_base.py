"""Tells adapters that were started from a part of their base from those that were started from zero.

peft takes that part out of the base when it makes or loads such an adapter, so that base plus adapter is the untrained
model. The trade-off: known by `init_lora_weights` alone; a conversion to a plain LoRA writes another value there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STARTED_FROM_BASE = ("pissa", "olora", "corda")
"""Beginnings of `init_lora_weights` with which peft takes a part out of the base"""


def part_of_base_at_start(adapter_config: Mapping[str, Any]) -> str | None:
    """The way in which an adapter was started from its base (`pissa_niter_16`); None where it was started from zero."""
    started = adapter_config.get("init_lora_weights")
    is_from_base = isinstance(started, str) and started.startswith(STARTED_FROM_BASE)
    return started if is_from_base else None
