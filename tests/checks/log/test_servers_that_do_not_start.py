"""A server whose engine finds no memory on its GPU, beside what nvidia-smi printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.parsing.read_nvidia_smi_output import MIB, read_nvidia_smi
from truetune.settings.run_spec import RunSpec

LINES = (
    "Traceback (most recent call last):",
    '  File "/env/vllm/v1/engine/core.py", line 699, in run_engine_core',
    "    engine_core = EngineCoreProc(*args, **kwargs)",
    '  File "/env/vllm/v1/worker/gpu_worker.py", line 187, in init_device',
    "    raise ValueError(",
    "ValueError: Free memory on device (37.66/79.15 GiB) on startup is less than desired GPU memory utilization"
    " (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
)
LOG = (
    "(APIServer pid=9) INFO 11-24 16:40:15 [api_server.py:1839] vLLM API server version 0.11.0\n"
    + "".join(
        f"(EngineCore_DP0 pid=90) ERROR 11-24 16:40:34 [core.py:708] {one}\n" for one in LINES
    )
)
TABLE = """\
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   58C    P0            612W /  700W |   {first}MiB /  81559MiB |     97%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                    0 |
| N/A   33C    P0            114W /  700W |   42486MiB /  81559MiB |      0%      Default |
| Processes:                                                                              |
|    0   N/A  N/A           71190      C   /envs/train/bin/python               71012MiB |
|    1   N/A  N/A           68331      C   ...train/bin/python -m ipykernel      42476MiB |
"""


def test_processes_of_a_gpu() -> None:
    first, second = read_nvidia_smi(TABLE.format(first="71022"))
    assert [one.pid for one in first.processes] == [71190]
    (process,) = second.processes
    assert (process.pid, process.used) == (68331, 42476 * MIB)
    assert process.name.endswith("-m ipykernel")


@pytest.mark.parametrize(("first", "is_named"), [("71022", True), ("42300", False)])
def test_who_holds_the_gpu(first: str, is_named: bool, tmp_path: Path) -> None:
    """Where two GPUs have as much free, nobody knows which of them is meant."""
    (tmp_path / "vllm.log").write_text(LOG, encoding="utf-8")
    (tmp_path / "nvidia-smi.txt").write_text(TABLE.format(first=first), encoding="utf-8")
    found = check_paths([str(tmp_path)], RunSpec()).findings
    (error,) = [one for one in found if one.rule == "run-ended-in-an-exception"]
    assert error.message.startswith("the server did not start: its engine ended in an exception")
    assert ("68331" in error.remedy) is is_named


DESKTOP = """\
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   58C    P0            112W /  700W |   42486MiB /  81559MiB |     97%      Default |
|    0   N/A  N/A            3391      G   /usr/lib/xorg/Xorg                       74MiB |
|    0   N/A  N/A          218840      C   python -m ipykernel                   42300MiB |
"""
CONFIG = '{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "vocab_size": 99}'


def test_a_desktop_is_not_to_be_ended(tmp_path: Path) -> None:
    (tmp_path / "serve.log").write_text(LOG)
    (tmp_path / "gpu.txt").write_text(DESKTOP)
    texts = " ".join(
        one.remedy or ""
        for one in check_paths([str(tmp_path)], RunSpec()).findings
        if one.rule == "run-ended-in-an-exception"
    )
    assert "218840" in texts
    assert "Xorg" not in texts


def test_a_log_beside_the_files_of_a_model_is_read(tmp_path: Path) -> None:
    for name, text in (("serve.log", LOG), ("gpu.txt", DESKTOP), ("config.json", CONFIG)):
        (tmp_path / name).write_text(text)
    findings = check_paths([str(tmp_path)], RunSpec()).findings
    (found,) = (one for one in findings if one.rule == "run-ended-in-an-exception")
    assert "218840" in (found.remedy or "")
