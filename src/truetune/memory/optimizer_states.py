"""State of optimizers, in bytes for each trained parameter.

torch keeps its states in the dtype of the parameter; bitsandbytes keeps 32-bit states in float32, and 8-bit states with
one float32 constant for each 256 values (Dettmers et al. 2022, arXiv:2110.02861).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class State(NamedTuple):
    """What one optimizer keeps."""

    items: float = 0
    """Values in the dtype of the parameter"""
    bytes: float = 0
    """Bytes in a dtype of its own"""
    working: float = 0
    """Values in the dtype of the parameter that live during the step"""
    gradients: bool = True
    """All gradients live until the step."""


BIT8 = 1 + 4 / 256
ADAM = State(items=2)
STATES: Mapping[str, State] = {
    "adamw_torch_fused": ADAM,
    "adamw_torch": State(items=2, working=1),
    "adamw_hf": ADAM,
    "adamw_torch_8bit": State(bytes=2 * BIT8),
    "adamw_torch_4bit": State(bytes=1 + 2 * 4 / 128),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"), State(bytes=2 * BIT8)),
    "paged_adamw_32bit": State(bytes=8),
    "paged_adamw": State(bytes=8),
    "ademamix": State(bytes=12),
    "paged_ademamix_32bit": State(bytes=12),
    **dict.fromkeys(("ademamix_8bit", "paged_ademamix_8bit"), State(bytes=3 * BIT8)),
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit"), State(bytes=4)),
    **dict.fromkeys(("lion_8bit", "paged_lion_8bit"), State(bytes=BIT8)),
    "sgd": State(),
    "schedule_free_sgd": State(items=1),
    "schedule_free_adamw": ADAM,
    "schedule_free_radam": ADAM,
    "adagrad": State(items=1, working=1),
    "rmsprop": State(items=1, working=1),
    "rmsprop_bnb": State(bytes=4),
    "rmsprop_bnb_32bit": State(bytes=4),
    "rmsprop_bnb_8bit": State(bytes=BIT8),
    "adafactor": State(),
    "muon": State(items=1),
    "lomo": State(gradients=False),
    "adalomo": State(gradients=False),
}
"""By the names of transformers; Adafactor's rows and columns are too few to count."""


def state_of(name: str) -> State:
    """The state of an optimizer; one that is not in the table is taken for AdamW."""
    return STATES.get(name.lower(), ADAM)
