"""The machine as torch would see it."""

from __future__ import annotations

import pytest

from truetune.memory.estimate_memory import GIB
from truetune.memory.read_machine import Gpu, Machine, parse_nvidia_smi, read_machine


def test_the_output_of_nvidia_smi() -> None:
    text = "NVIDIA H200, 143771\nNVIDIA GeForce RTX 4090, 24564\n"
    assert parse_nvidia_smi(text) == [
        Gpu("NVIDIA H200", 143771 * 2**20),
        Gpu("NVIDIA GeForce RTX 4090", 24564 * 2**20),
    ]
    assert parse_nvidia_smi("No devices were found\n") == []


@pytest.mark.parametrize(
    ("said", "visible"),
    [
        (None, (0, 1, 2, 3)),
        ("0,1", (0, 1)),
        ("3, 1", (3, 1)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", (0,)),
        ("0,7,1", (0,)),
        ("1,1", ()),
        ("2gpu", (2,)),
        ("none", ()),
        ("GPU-1234,GPU-5678", (0, 1)),
    ],
)
def test_visible_devices(said: str | None, visible: tuple[int, ...]) -> None:
    variables = {} if said is None else {"CUDA_VISIBLE_DEVICES": said}
    assert (
        Machine((Gpu("GPU", 24 * GIB),) * 4, environment=variables).visible_gpu_indices == visible
    )


def test_torch_reads_the_variable_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.cuda import _parse_visible_devices

    for said in ("0,1", "3,1", "", "-1", "0,-1,2", "1,1", "2gpu", "0, 1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
        seen = Machine(
            (Gpu("GPU", GIB),) * 64, environment={"CUDA_VISIBLE_DEVICES": said}
        ).visible_gpu_indices
        assert seen == tuple(_parse_visible_devices()), said


def test_this_machine() -> None:
    found = read_machine({"WORLD_SIZE": "8", "LOCAL_RANK": "x", "HOME": "/"})
    assert found.environment == {"WORLD_SIZE": "8", "LOCAL_RANK": "x"}
    assert found.environment_variable_as_int("WORLD_SIZE") == 8
    assert found.environment_variable_as_int("LOCAL_RANK") is None
    assert found.cpus
    assert found.is_started_by_launcher
