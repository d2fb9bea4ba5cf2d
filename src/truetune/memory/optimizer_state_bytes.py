"""A table of the state that optimizers keep, in bytes for each trained parameter.

torch keeps its states in the dtype of the parameter; bitsandbytes keeps 32-bit states in float32, and 8-bit states with
one float32 constant for each 256 values (Dettmers et al. 2022, arXiv:2110.02861).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OptimizerState(NamedTuple):
    """What one optimizer keeps for each parameter."""

    items: float = 0
    """Values in the dtype of the parameter"""
    bytes: float = 0
    """Bytes in a dtype of its own"""
    working: float = 0
    """Values in the dtype of the parameter that live during the step"""
    gradients: bool = True
    """All gradients live until the step."""


# A byte for each value, and a float32 constant for each block of 256.
EIGHT_BIT_BYTES = 1 + 4 / 256
# Both moments.
ADAM = OptimizerState(items=2)
OPTIMIZER_STATES: Mapping[str, OptimizerState] = {
    "adamw_torch_fused": ADAM,
    # Its loop over tensors makes the update of all of them before any is applied.
    "adamw_torch": OptimizerState(items=2, working=1),
    "adamw_hf": ADAM,
    "adamw_torch_8bit": OptimizerState(bytes=2 * EIGHT_BIT_BYTES),
    # torchao: half a byte twice, and a constant for each 128 values.
    "adamw_torch_4bit": OptimizerState(bytes=1 + 2 * 4 / 128),
    **dict.fromkeys(
        ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"),
        OptimizerState(bytes=2 * EIGHT_BIT_BYTES),
    ),
    "paged_adamw_32bit": OptimizerState(bytes=8),
    "paged_adamw": OptimizerState(bytes=8),
    "ademamix": OptimizerState(bytes=12),
    "paged_ademamix_32bit": OptimizerState(bytes=12),
    **dict.fromkeys(
        ("ademamix_8bit", "paged_ademamix_8bit"), OptimizerState(bytes=3 * EIGHT_BIT_BYTES)
    ),
    **dict.fromkeys(("lion_32bit", "paged_lion_32bit"), OptimizerState(bytes=4)),
    **dict.fromkeys(("lion_8bit", "paged_lion_8bit"), OptimizerState(bytes=EIGHT_BIT_BYTES)),
    "sgd": OptimizerState(),
    "schedule_free_sgd": OptimizerState(items=1),
    "schedule_free_adamw": ADAM,
    "schedule_free_radam": ADAM,
    "adagrad": OptimizerState(items=1, working=1),
    "rmsprop": OptimizerState(items=1, working=1),
    "rmsprop_bnb": OptimizerState(bytes=4),
    "rmsprop_bnb_32bit": OptimizerState(bytes=4),
    "rmsprop_bnb_8bit": OptimizerState(bytes=EIGHT_BIT_BYTES),
    "adafactor": OptimizerState(),
    "muon": OptimizerState(items=1),
    # They apply each gradient as it comes.
    "lomo": OptimizerState(gradients=False),
    "adalomo": OptimizerState(gradients=False),
}
"""By the names of transformers; Adafactor's rows and columns are too few to count."""


def state_of_optimizer(name: str) -> OptimizerState:
    """The state of an optimizer; one that is not in the table is taken for AdamW."""
    # AdamW has the most states of those in use: an unknown one is rather counted too high.
    return OPTIMIZER_STATES.get(name.lower(), ADAM)
