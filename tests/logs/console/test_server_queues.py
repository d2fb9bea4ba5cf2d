"""Servers whose requests wait for a cap, as five programs print it, and those whose requests wait for memory."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from truetune.checks.log.server_cap_makes_requests_wait import ServerCapMakesRequestsWait
from truetune.logs.read_run_log import read_run

VLLM_ARGUMENTS = "(APIServer pid=1) INFO 11-14 09:02:11 [utils.py:233] non-default args: {'model': '/m', 'max_num_seqs': 4}\n"
OLLAMA_CONFIG = 'time=2026-11-09T08:12:03.114+01:00 level=INFO source=routes.go:1511 msg="server config" env="map[OLLAMA_HOST:x OLLAMA_NUM_PARALLEL:1]"\n'
TGI_CONFIG = "2025-05-01T09:59:00Z  INFO text_generation_launcher: Args {\n    max_concurrent_requests: 128,\n    max_batch_size: Some(2),\n}\n"
SGLANG_CONFIG = (
    "[2025-05-01 10:00:00] server_args=ServerArgs(model_path='/m', max_running_requests=8)\n"
)
LLAMA_CONFIG = "main: server is listening on http://0.0.0.0:8080\nsrv    load_model: initializing slots, n_slots = 1\n"


def vllm(
    running: Sequence[int], waiting: Sequence[int], usage: Sequence[float], count: int = 12
) -> str:
    """Reports of vLLM."""
    return "".join(
        "(APIServer pid=1) INFO 11-14 09:04:00 [loggers.py:127] Engine 000: Avg prompt throughput: 503.8 tokens/s, Avg"
        f" generation throughput: 34.0 tokens/s, Running: {running[n % len(running)]} reqs, Waiting:"
        f" {waiting[n % len(waiting)]} reqs, GPU KV cache usage: {usage[n % len(usage)]}%, Prefix cache hit rate: 42.8%\n"
        for n in range(count)
    )


def old_vllm(running: int, pending: int, usage: float) -> str:
    """Reports of vLLM before its second engine."""
    return 12 * (
        "INFO 03-01 10:00:00 metrics.py:345] Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 200.0 tokens/s,"
        f" Running: {running} reqs, Swapped: 0 reqs, Pending: {pending} reqs, GPU KV cache usage: {usage}%, CPU KV cache"
        " usage: 0.0%.\n"
    )


def sglang(running: int, usage: float, queued: int) -> str:
    """Reports of SGLang."""
    return 12 * (
        f"[2025-05-01 10:00:01] Decode batch. #running-req: {running}, #token: 4321, token usage: {usage}, cuda graph: True,"
        f" gen throughput (token/s): 312.1, #queue-req: {queued}\n"
    )


def tgi(waited: float, worked: float) -> str:
    """Requests of TGI."""
    return 20 * (
        "2025-05-01T10:00:01.000Z  INFO compat_generate{default_return_full_text=true}:generate{parameters=x}:"
        f' text_generation_router::server: router/src/server.rs:590: Success total_time="{waited + worked}s"'
        f' validation_time="350.1µs" queue_time="{waited}s" inference_time="{worked}s" time_per_token="20.1ms"\n'
    )


def ollama(took: str) -> str:
    """Requests of Ollama that end every six seconds."""
    return "".join(
        f'[GIN] 2026/11/09 - 08:{10 + n * 6 // 60:02d}:{n * 6 % 60:02d} | 200 | {took} |       10.0.0.7 | POST     "/api/chat"\n'
        for n in range(1, 13)
    )


def llama_cpp(*, is_idle_between: bool) -> str:
    """Requests of llama.cpp's server with one slot."""
    idle = "srv  update_slots: all slots are idle\n" if is_idle_between else ""
    return "".join(
        f"slot launch_slot_: id  0 | task {n} | processing task\nslot      release: id  0 | task {n} | stop processing\n{idle}"
        for n in range(20)
    )


def said(tmp_path: Path, text: str) -> str:
    """What the rule says of a log; empty where it says nothing."""
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return " ".join(one.message for one in ServerCapMakesRequestsWait(read_run(path)).findings())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(VLLM_ARGUMENTS + vllm([4], [124, 120], [0.9]), "max_num_seqs is 4", id="vLLM"),
        pytest.param(vllm([2], [40], [3.0]), "max_num_seqs", id="vLLM without its arguments"),
        pytest.param(old_vllm(16, 84, 6.1), "16 at a time", id="vLLM before its second engine"),
        pytest.param(SGLANG_CONFIG + sglang(8, 0.02, 90), "max_running_requests is 8", id="SGLang"),
        pytest.param(TGI_CONFIG + tgi(10.9, 1.4), "max_batch_size is 2", id="TGI"),
        pytest.param(OLLAMA_CONFIG + ollama("54.1s"), "OLLAMA_NUM_PARALLEL is 1", id="Ollama"),
        pytest.param(OLLAMA_CONFIG + ollama("1m2.4s"), "OLLAMA_NUM_PARALLEL is 1", id="Ollama, minutes"),
        pytest.param(LLAMA_CONFIG + llama_cpp(is_idle_between=False), "(-np) is 1", id="llama.cpp"),
    ],
)  # fmt: skip
def test_a_cap_that_makes_requests_wait_is_named(tmp_path: Path, text: str, named: str) -> None:
    assert named in said(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(VLLM_ARGUMENTS + vllm([4], [30], [97.0, 99.1]), id="vLLM, full cache"),
        pytest.param(vllm([3, 9, 14, 11], [2, 5], [14.0]), id="vLLM, always other numbers"),
        pytest.param(vllm([64], [20], [20.0], 3) + vllm([12, 30], [0], [20.0], 20), id="vLLM, a burst"),
        pytest.param(vllm([256], [200], [40.0]), id="vLLM's own default"),
        pytest.param(VLLM_ARGUMENTS + vllm([4], [0], [0.9]), id="vLLM, nobody waits"),
        pytest.param(SGLANG_CONFIG + sglang(8, 0.98, 90), id="SGLang, full cache"),
        pytest.param(TGI_CONFIG + tgi(0.1, 1.4), id="TGI, nobody waits"),
        pytest.param(OLLAMA_CONFIG + ollama("4.2s"), id="Ollama, one after another"),
        pytest.param(OLLAMA_CONFIG.replace(":1]", ":0]") + ollama("54.1s"), id="Ollama, cap not known"),
        pytest.param(LLAMA_CONFIG + llama_cpp(is_idle_between=True), id="llama.cpp, idle between"),
    ],
)  # fmt: skip
def test_other_waiting_is_not_laid_to_a_cap(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == ""
