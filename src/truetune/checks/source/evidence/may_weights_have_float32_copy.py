"""Says whether the weights that a script hands to an optimizer may have a float32 copy elsewhere."""

from __future__ import annotations

import re
from typing import NamedTuple

from truetune.source.parsed_source_file import Module


class NarrowWeightDtype(NamedTuple):
    """A dtype of 16 bits, as code names it."""

    names: frozenset[str]
    method: str
    """The method of a model that casts it so"""


BFLOAT16 = NarrowWeightDtype(frozenset(("torch.bfloat16", "bfloat16")), "bfloat16")
FLOAT16 = NarrowWeightDtype(frozenset(("torch.float16", "torch.half", "float16")), "half")
WIDE = frozenset(("torch.float32", "float32", "torch.float"))
OTHERS = WIDE | BFLOAT16.names | FLOAT16.names
MASTER_WEIGHT_SIGNS = ("deepspeed", ".data.float(", ".data.to(", "cast_training_params")
"""Texts of what trains float32 copies of the weights, or casts some of them"""


def text_may_shard_weights(text: str) -> bool:
    """May the weights be sharded, which keeps a float32 copy of them?"""
    return (
        "Accelerator" in text
        and re.search("fsdp|deepspeed|fully_?sharded", text, re.IGNORECASE) is not None
    )


def may_keep_float32_copies(module: Module) -> bool:
    """May what is trained have a float32 copy, by sharding or a cast of what is trained?"""
    if module.mentions(*MASTER_WEIGHT_SIGNS):
        return True
    return any(text_may_shard_weights(part.text) for part in module.self_and_files_run_together)
