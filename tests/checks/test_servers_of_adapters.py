"""Servers of adapters and of unquantized files: what makes each answer slow, and what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.checks.findings import Finding

REPORT = (
    "INFO 03-02 10:{:02d}:00 [loggers.py:100] Engine 000: Avg prompt throughput: 90.0 tokens/s, Avg generation"
    " throughput: 60.0 tokens/s, Running: 3 reqs, Waiting: 25 reqs, GPU KV cache usage: 4.0%, Prefix cache hit rate:"
    " 0.0%\n"
)
LOG = "".join(REPORT.format(minute) for minute in range(12))


def write_adapters(folder: Path, *ranks: int) -> str:
    """Folders of adapters with these ranks, as words of --lora-modules."""
    for number, rank in enumerate(ranks):
        path = folder / f"a{number}"
        path.mkdir()
        settings = {"peft_type": "LORA", "r": rank, "base_model_name_or_path": "org/base"}
        path.joinpath("adapter_config.json").write_text(json.dumps(settings))
    return " ".join(f"n{number}=a{number}" for number, _ in enumerate(ranks))


def found(folder: Path, code: str) -> list[Finding]:
    return [finding for finding in truetune.check(folder).findings if finding.code == code]


@pytest.mark.parametrize(
    ("ranks", "given", "needed"), [((16,), 256, 16), ((8, 30), 128, 32), ((4,), 64, 8)]
)
def test_adapters_are_padded_to_a_rank_that_none_has(
    tmp_path: Path, ranks: tuple[int, ...], given: int, needed: int
) -> None:
    modules = write_adapters(tmp_path, *ranks)
    text = f"vllm serve org/base --enable-lora --max-lora-rank {given} --lora-modules {modules}\n"
    tmp_path.joinpath("serve.sh").write_text(text)
    [finding] = found(tmp_path, "CMD002")
    assert f"set --max-lora-rank {needed}" in finding.remedy
    assert f"r={max(ranks)}" in finding.message


@pytest.mark.parametrize(
    "options",
    [
        "--max-lora-rank 16 --lora-modules n0=a0",
        "--max-lora-rank 32 --lora-modules n0=a0",
        "--max-lora-rank 256 --lora-modules n0=a0 other=elsewhere",  # may have any rank
        "--max-lora-rank 256",  # adapters may be loaded later
        "--max-lora-rank $RANK --lora-modules n0=a0",
    ],
)
def test_a_rank_that_may_be_needed_is_no_fault(tmp_path: Path, options: str) -> None:
    write_adapters(tmp_path, 16)
    tmp_path.joinpath("serve.sh").write_text(f"vllm serve org/base --enable-lora {options}\n")
    assert found(tmp_path, "CMD002") == []


@pytest.mark.parametrize(
    "text",
    [
        "./llama-server -m models/tuned-f32.gguf -c 4096\n",
        "llama-cli --model tuned.F32.gguf -p Hello\n",
        "python convert_hf_to_gguf.py out --outtype f32 --outfile t.gguf\n./llama-server -m t.gguf\n",
    ],
)
def test_a_file_of_float32_is_slow(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("serve.sh").write_text(text)
    [finding] = found(tmp_path, "CMD002")
    assert "is float32" in finding.message
    assert "-q4_k_m.gguf Q4_K_M" in finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        "./llama-server -m models/tuned-q8_0.gguf -c 4096\n",
        "./llama-server -m models/tuned-f16.gguf\n",
        "./llama-server -m embedder-f32.gguf --embedding\n",
        (
            "python convert_hf_to_gguf.py out --outtype f32 --outfile t-f32.gguf\nllama-quantize t-f32.gguf t-q4.gguf"
            " Q4_K_M\n./llama-server -m t-q4.gguf\n"
        ),
        "./llama-server -m model.gguf --mmproj mmproj-f32.gguf\n",
    ],
)
def test_a_quantized_file_is_fast(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("serve.sh").write_text(text)
    assert found(tmp_path, "CMD002") == []


@pytest.mark.parametrize("option", ["", "--max-loras 1", "--max-loras 2"])
def test_requests_of_other_adapters_wait(tmp_path: Path, option: str) -> None:
    modules = write_adapters(tmp_path, 16, 16, 16)
    text = f"vllm serve org/base --enable-lora {option} --lora-modules {modules}\n"
    tmp_path.joinpath("serve.sh").write_text(text)
    tmp_path.joinpath("vllm.log").write_text(LOG)
    [finding] = found(tmp_path, "LOG064")
    assert "3 adapters are served" in finding.message
    assert "--max-loras" in finding.remedy
    assert "max-num-seqs" not in finding.remedy


@pytest.mark.parametrize("option", ["--max-loras 3", "--max-loras 1 --max-num-seqs 3"])
def test_other_caps_are_still_named(tmp_path: Path, option: str) -> None:
    modules = write_adapters(tmp_path, 16, 16, 16)
    text = f"vllm serve org/base --enable-lora {option} --lora-modules {modules}\n"
    tmp_path.joinpath("serve.sh").write_text(text)
    tmp_path.joinpath("vllm.log").write_text(LOG)
    [finding] = found(tmp_path, "LOG064")
    assert "max_num_seqs" in finding.message
