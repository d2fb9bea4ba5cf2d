"""The processes of a run: which of them sample, and what they agree on.

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
    """Are there other processes?"""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def process_rank() -> int:
    """The number of this one."""
    return distributed.get_rank() if is_distributed() else 0


def process_count() -> int:
    """How many there are."""
    return distributed.get_world_size() if is_distributed() else 1


def gather_objects(thing: Any) -> list[Any]:
    """The thing of each process, in every process."""
    if not is_distributed():
        return [thing]
    things: list[Any] = [None] * process_count()
    # Pickled objects through the run's own group; answers are a few kilobytes, so that this costs
    # milliseconds a pass.
    distributed.all_gather_object(things, thing)
    return things


def broadcast_object(thing: Any) -> Any:
    """The thing of the first process, in every process."""
    if is_distributed():
        things = [thing]
        distributed.broadcast_object_list(things, src=0)
        return things[0]
    return thing


def describe_sharding(model: torch.nn.Module) -> str:
    """How the weights are spread over the processes (`FSDP`, `FSDP 1`, `ZeRO 3`), so that all of them must take part in
    a forward pass; empty where each has its own."""
    if not is_distributed():
        return ""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return "FSDP 1"
    parameters = list(model.parameters())
    # DeepSpeed's mark on a parameter that ZeRO 3 has taken apart; its class is not always at hand
    # to import.
    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        return "ZeRO 3"
    return (
        "FSDP"
        if any(type(parameter.data).__name__ == "DTensor" for parameter in parameters)
        else ""
    )


@contextmanager
def unshard_model(model: torch.nn.Module) -> Iterator[None]:
    """In here the outermost weights of an FSDP model are together: those that only its own forward pass collects, which
    an adapter's model goes around. It must have made one such pass before."""
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
