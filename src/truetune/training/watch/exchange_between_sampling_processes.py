"""What the processes of a run exchange for sampling: which of them sample, and what they agree on.

Plain torch.distributed, for the watcher may be a callback of a trainer that is not ours, without accelerate's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed
from torch.distributed.fsdp import FSDPModule


def is_distributed() -> bool:
    """Does the run have other processes?"""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def process_rank() -> int:
    """The rank of this process."""
    return distributed.get_rank() if is_distributed() else 0


def process_count() -> int:
    """How many processes there are."""
    return distributed.get_world_size() if is_distributed() else 1


def gather_objects(thing: Any) -> list[Any]:
    """Gather an object from each process, in every process."""
    if not is_distributed():
        return [thing]
    things: list[Any] = [None] * process_count()
    # Pickled objects through the run's own group; answers are a few kilobytes, so that this costs
    # milliseconds a pass.
    distributed.all_gather_object(things, thing)
    return things


def broadcast_object(thing: Any) -> Any:
    """Give the object of the first process to every process."""
    if is_distributed():
        things = [thing]
        distributed.broadcast_object_list(things, src=0)
        return things[0]
    return thing


def describe_sharding(model: torch.nn.Module) -> str:
    """How the weights are spread over the processes (`FSDP`, `FSDP 1`, `ZeRO 3`); empty where each
    has its own.
    """
    if not is_distributed():
        return ""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return "FSDP 1"
    parameters = list(model.parameters())
    # DeepSpeed's mark on a parameter that ZeRO 3 has taken apart; its class is not always available
    # to import.
    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        return "ZeRO 3"
    return (
        "FSDP"
        if any(type(parameter.data).__name__ == "DTensor" for parameter in parameters)
        else ""
    )


@contextmanager
def gather_outer_fsdp_weights(model: torch.nn.Module) -> Iterator[None]:
    """While this lasts, the outermost weights of an FSDP model are gathered on each process. It
    must have made one such pass before.
    """
    if not isinstance(model, FSDPModule):
        yield
        return
    # fully_shard collects the root's own weights in the root's forward only, and generate() of a
    # peft model enters below it.
    model.unshard()
    try:
        yield
    finally:
        model.reshard()
