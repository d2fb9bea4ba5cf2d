"""Where llama.cpp puts layers, what holds a GPU beside a training, and float16 behind losses of 0.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.diagnose_log import diagnose
from truetune.settings.run_spec import RunSpec

LAYERS = "".join(
    f"load_tensors: layer {n:3} assigned to device {{}}, is_swa = 0\n" for n in range(4)
)
CACHE = "llama_kv_cache_unified:        {} KV buffer size =   448.00 MiB\n"
GPU = "Llama(n_gpu_layers=-1), NVIDIA GeForce RTX 4070\n"
WITHOUT = "llama.cpp was built without support for the GPU"


def findings(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "run.log"
    path.write_text(text)
    return {
        one.rule: " ".join((one.severity, one.message, one.remedy or "", *one.evidence))
        for one in diagnose(path).findings
    }


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (LAYERS.format(*["CPU"] * 4) + CACHE.format("CPU") + GPU, "warning"),
        (LAYERS.format(*["CPU"] * 4) + CACHE.format("CPU"), "info"),
        (LAYERS.format("CPU", *["CUDA0"] * 3) + CACHE.format("CUDA0") + GPU, ""),
        (LAYERS.format(*["Metal"] * 4) + CACHE.format("Metal"), ""),
    ],
)
def test_layers_on_the_cpu(tmp_path: Path, text: str, severity: str) -> None:
    found = findings(tmp_path, text).get("fault-named-in-the-output", "")
    assert (WITHOUT in found) == bool(severity)
    assert found.startswith(severity)


CACHE_OF_VLLM = "INFO 10-12 09:03:20 [gpu_worker.py:298] Available KV cache memory: {} GiB\n"
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "/h/grpo.py", line 58, in main
    trainer.train()
  File "/v/trl/trainer/grpo_trainer.py", line 847, in _get_per_token_logps
    logps = selective_log_softmax(logits, completion_ids)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.14 GiB of \
which 1.71 GiB is free. Including non-PyTorch memory, this process has 77.43 GiB memory in use. Of the allocated \
memory 74.80 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.
"""


@pytest.mark.parametrize(
    ("before", "is_engine"),
    [
        (CACHE_OF_VLLM.format("52.63"), True),
        (CACHE_OF_VLLM.format("9.1"), False),
        (CACHE_OF_VLLM.format("52.63") + "It took 0.4 seconds to fall asleep.\n", False),
        ("", False),
    ],
)
def test_an_engine_beside_the_training(tmp_path: Path, before: str, is_engine: bool) -> None:
    found = findings(tmp_path, before + OUT_OF_MEMORY)["run-ended-in-an-exception"]
    assert ("vLLM holds most of this GPU" in found) == is_engine


NOTHING = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.1}\n" * 10
HIDDEN = "loss-or-gradient-exactly-zero"


def test_a_hidden_nan_of_float16(tmp_path: Path) -> None:
    command = "+ python t.py --model_name_or_path google/gemma-3-4b-it --fp16 True\nTesla V100-SXM2-32GB\n"
    found = findings(tmp_path, command + NOTHING)[HIDDEN]
    assert "gemma-3 overflows in float16" in found
    assert "float32" in found
    assert "a Tesla V100 has no bfloat16" in found
    other = "+ python t.py --model_name_or_path m-8b --bf16 True\n"
    rate = NOTHING.replace("'learning_rate': 0.0", "'learning_rate': 1e-4")
    assert "if it is trained in float16" in findings(tmp_path, other + rate)[HIDDEN]


OLLAMA = """load_tensors: offloaded {layers}/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  5931.62 MiB
load_tensors:        CUDA0 model buffer size =  2635.97 MiB
llama_kv_cache_unified: size = {size}.00 MiB ({cells} cells,  48 layers,  {slots} seqs), K (f16): 1.00 MiB
[GIN] 2025/07/21 - 08:17:31 | 200 |  1m23.918204411s |     172.18.0.1 | POST     "/api/chat"
"""


@pytest.mark.parametrize(
    ("size", "cells", "slots", "is_cause"),
    [
        (49152, 262144, 8, True),
        (12288, 65536, 2, True),
        (6144, 32768, 1, False),
        (1536, 8192, 4, False),
    ],
)
def test_a_cache_of_many_requests_that_pushes_layers_to_the_cpu(
    tmp_path: Path, size: int, cells: int, slots: int, is_cause: bool
) -> None:
    path = tmp_path / "ollama.log"
    path.write_text(OLLAMA.format(layers=16, size=size, cells=cells, slots=slots))
    [found] = [
        one
        for one in check_paths([str(path)], RunSpec()).findings
        if one.rule == "fault-named-in-the-output"
    ]
    assert found.remedy.startswith("set OLLAMA_NUM_PARALLEL=1") is is_cause
    assert (f"room for {slots} requests at once" in found.evidence[0]) is is_cause
