"""Describes what an NCCL variable that switches a transport off costs a job, by its numbers of
nodes and GPUs.

Whether it costs anything depends on the job: without several nodes nothing goes over InfiniBand, and without several
GPUs of a node nothing goes from GPU to GPU. Consumer GPUs need NCCL_P2P_DISABLE, and Accelerate asks for both variables
on them, so that without a sign of several nodes it is a note.
"""

from __future__ import annotations

from typing import NamedTuple

from truetune.settings.run_spec import Severity

BETWEEN_NODES = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
WITHIN_NODE = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
NCCL_VARIABLES = frozenset((*BETWEEN_NODES, *WITHIN_NODE))
SWITCHED_ON = ("1", "true", "yes")


class TransportLost(NamedTuple):
    """What a variable costs."""

    severity: Severity
    why: str
    instead: str


def does_switch_transport_off(name: str, value: str) -> bool:
    """Does a variable with this value switch a transport off?"""
    wanted = BETWEEN_NODES.get(name) or WITHIN_NODE.get(name)
    return value == wanted or (wanted == "1" and value.lower() in SWITCHED_ON)


def cost_of_switched_off_transport(
    name: str, value: str, nodes: int | None, gpus: int | None
) -> TransportLost | None:
    """What comes of a variable; None where it does nothing, or nothing goes that way.

    Args:
        name: of the variable.
        value: as it is set.
        nodes: of the job; None where it is not known.
        gpus: of each node; None where that is not known.
    """
    if not does_switch_transport_off(name, value):
        return None
    if name in BETWEEN_NODES:
        return None if nodes == 1 else _cost_between_nodes(name, value, nodes)
    return None if gpus == 1 else _cost_within_node(name, value, gpus)


def _cost_between_nodes(name: str, value: str, nodes: int | None) -> TransportLost:
    """The finding's parts for a variable that keeps NCCL from InfiniBand and RoCE between nodes."""
    who = f"the {nodes} nodes" if nodes else "nodes, if there are several,"
    return TransportLost(
        "warning" if nodes else "info",
        f"{name}={value}: {who} exchange gradients over TCP instead of InfiniBand or RoCE",
        f"remove {name} if the nodes have InfiniBand (`ibstat` shows it); NCCL_DEBUG=INFO prints what is used (via"
        " NET/IB or via NET/Socket)",
    )


def _cost_within_node(name: str, value: str, gpus: int | None) -> TransportLost:
    """The finding's parts for a variable that keeps NCCL from direct copies between the GPUs of a
    node.
    """
    who = f"the {gpus} GPUs of a node" if gpus else "GPUs of one node"
    if name == "NCCL_SHM_DISABLE":
        return TransportLost(
            "warning" if gpus else "info",
            f"{name}={value}: {who} that can't copy directly exchange gradients over TCP",
            f"remove {name}, and start a container with --shm-size 16g or --ipc=host",
        )
    return TransportLost(
        "info",
        f"{name}={value}: {who} exchange gradients through CPU memory",
        f"remove {name} on GPUs with NVLink or P2P (`nvidia-smi topo -m`); RTX 4000 with drivers before 550 need it",
    )
