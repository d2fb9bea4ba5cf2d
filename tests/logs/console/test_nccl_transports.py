"""Over what NCCL sends gradients: TCP between nodes, the host's memory within one, and what is as it should be."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import truetune
from truetune.checks.log.gradients_cross_a_slow_network import GradientsCrossASlowNetwork
from truetune.logs.read_run_log import read_run

RECORD = "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}\n"
HEAD = "gpu-a17:2201:2290 [0] NCCL INFO "


def disabled(*names: str) -> str:
    """Lines on variables that are set."""
    return "".join(f"{HEAD}{name} set by environment to 1.\n" for name in names)


def joined(network: str, channels: Sequence[str], nodes: int = 2, ranks: int = 16) -> str:
    """What NCCL prints when it joins the processes."""
    text = f"{HEAD}Using network {network}\n{HEAD}comm 0x5 rank 0 nRanks {ranks} nNodes {nodes} localRanks {ranks // nodes} localRank 0 MNNVL 0\n"
    return text + "".join(
        f"{HEAD}Channel 00/0 : 0[0] -> 8[0] [send] via {one}\n" for one in channels
    )


def said(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    """Severity and message of what the rule finds."""
    path = tmp_path / "run.log"
    path.write_text(text + RECORD, encoding="utf-8")
    return [
        (one.severity, one.message) for one in GradientsCrossASlowNetwork(read_run(path)).findings()
    ]


@pytest.mark.parametrize(
    ("text", "severity", "named"),
    [
        pytest.param(disabled("NCCL_IB_DISABLE") + joined("Socket", ["NET/Socket/0", "P2P/CUMEM"]), "warning", "NCCL_IB_DISABLE turns", id="InfiniBand switched off"),
        pytest.param(joined("Socket", ["NET/Socket/0"]).replace("nNodes 2", "nNodes 4"), "info", "the 4 nodes", id="TCP, nothing switched off"),
        pytest.param(joined("Socket", []), "info", "NET/Socket", id="no channels printed"),
        pytest.param(f"{HEAD}NET/IB : No device found.\n" + joined("Socket", ["NET/Socket/0"]), "info", "no InfiniBand device", id="no device"),
        pytest.param(f"{HEAD}Failed to open libibverbs.so[.1]\n" + joined("Socket", ["NET/Socket/0"]), "warning", "libibverbs can't be opened", id="no library of InfiniBand"),
        pytest.param(f"{HEAD}Using network Socket\n{HEAD.replace('a17', 'a18')}Using network Socket\n", "info", "the 2 nodes", id="nodes by their hosts"),
        pytest.param(joined("IB", ["NET/IB/0", "P2P/CUMEM"]), "info", "without GPUDirect", id="InfiniBand through the host"),
        pytest.param(disabled("NCCL_P2P_DISABLE") + joined("Socket", ["SHM/direct/direct"], 1, 8), "info", "host memory", id="no copies from GPU to GPU"),
        pytest.param(disabled("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") + joined("Socket", ["NET/Socket/0"], 1, 4), "warning", "through TCP", id="TCP within a node"),
    ],
)  # fmt: skip
def test_slow_transports_are_named(tmp_path: Path, text: str, severity: str, named: str) -> None:
    ((found_severity, message),) = said(tmp_path, text)
    assert found_severity == severity
    assert named in message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(joined("IB", ["NET/IB/0/GDRDMA", "P2P/CUMEM"]), id="InfiniBand"),
        pytest.param(joined("Socket", ["P2P/CUMEM"], 1, 8), id="one node names a socket that it does not use"),
        pytest.param(disabled("NCCL_IB_DISABLE") + joined("Socket", ["P2P/CUMEM"], 1, 8), id="switched off on one node"),
        pytest.param(disabled("NCCL_P2P_DISABLE") + joined("IB", ["NET/IB/0/GDRDMA"], 2, 2), id="one GPU on each node"),
        pytest.param(f"{HEAD}NCCL_IB_DISABLE set by environment to 0.\n" + joined("IB", ["NET/IB/0/GDRDMA"]), id="set to 0"),
        pytest.param(f"{HEAD}Failed to open libibverbs.so[.1]\n" + joined("Socket", ["P2P/CUMEM"], 1, 8), id="one node needs no InfiniBand"),
        pytest.param(f"{HEAD}Failed to open libibverbs.so[.1]\n" + joined("AWS Libfabric", ["NET/AWS Libfabric/0/GDRDMA"]), id="a cloud's plugin instead"),
        pytest.param("question: what does NCCL mean by via NET/Socket?\n", id="words in a row"),
    ],
)  # fmt: skip
def test_other_transports_are_none(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == []


@pytest.mark.parametrize(
    ("dockerfile", "is_named"),
    [
        ("FROM python:3.11-slim\nRUN pip install torch\n", True),
        ("FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN pip install torch\n", True),
        ("FROM python:3.11-slim\nRUN apt-get install -y rdma-core\n", False),
        ("FROM nvcr.io/nvidia/pytorch:24.10-py3\n", False),
    ],
)
def test_the_image_without_the_library_is_named(
    tmp_path: Path, dockerfile: str, is_named: bool
) -> None:
    tmp_path.joinpath("Dockerfile").write_text(dockerfile)
    text = f"{HEAD}Failed to open libibverbs.so[.1]\n" + joined("Socket", ["NET/Socket/0"])
    tmp_path.joinpath("run.log").write_text(text + RECORD * 3)
    report = truetune.check(tmp_path, select=["LOG066"], allow_unjudged=True)
    [finding] = report.findings
    assert any("Dockerfile" in (case.file or "") for case in finding.cases) is is_named
