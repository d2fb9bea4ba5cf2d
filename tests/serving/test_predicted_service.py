"""`serve-check --static` on files: what is judged, what is not, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from truetune.cli.merge_export_movement_commands import export
from truetune.cli.serve_check_command import serve_check
from truetune.errors import UsageError
from truetune.serving.predict_adapter_service import predict_adapter_service

QUERY_VALUE = ("self_attn.q_proj", "self_attn.v_proj")


def write_base(folder: Path, architecture: str, layers: int = 2) -> Path:
    folder.mkdir()
    config = {"architectures": [architecture], "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_adapter(
    folder: Path,
    prefix: str = "model.",
    modules: tuple[str, ...] = QUERY_VALUE,
    layers: int = 2,
    rank: int = 4,
    **settings: Any,
) -> Path:
    folder.mkdir()
    tensors = {}
    for layer in range(layers):
        for module in modules:
            name = f"base_model.model.{prefix}layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = np.zeros((rank, 16), np.float32)
            tensors[f"{name}.lora_B.weight"] = np.zeros((16, rank), np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    leaves = [module.rpartition(".")[2] for module in modules]
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": leaves, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def ask(adapter: Path, base: Path, engine: str, release: str) -> Result:
    arguments = [str(adapter), "--static", "--engine", engine, "--engine-version", release]
    return CliRunner().invoke(serve_check, [*arguments, "--base", str(base)], standalone_mode=False)


def codes(adapter: Path, base: Path, engine: str, release: str) -> list[str]:
    report = predict_adapter_service(adapter, engine, release, base=base)
    return [finding.code for finding in report.findings]


def test_names_of_the_text_model_on_a_picture_model(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "Qwen3VLForConditionalGeneration")
    text, picture = (
        write_adapter(tmp_path / prefix.strip("."), prefix)
        for prefix in ("model.", "model.language_model.")
    )
    report = predict_adapter_service(text, "vllm", "0.32.0", base=base)
    assert [finding.code for finding in report.findings] == ["SRV015"]
    assert report.findings[0].count == 8
    assert "base_model.model.model.language_model." in report.findings[0].remedy
    assert report.exit_code() == 1
    assert predict_adapter_service(picture, "vllm", "0.32.0", base=base).exit_code() == 0
    # llama.cpp's converter takes both names.
    assert codes(text, base, "llama.cpp", "0c1e57098") == []


def test_rank_scale_and_layers(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "LlamaForCausalLM")
    wide = write_adapter(tmp_path / "wide", rank=40)
    report = predict_adapter_service(wide, "vllm", "0.32.0", base=base)
    assert [finding.code for finding in report.findings] == ["SRV018"]
    assert "--max-lora-rank 64" in report.findings[0].remedy
    stable = write_adapter(tmp_path / "stable", use_rslora=True)
    assert codes(stable, base, "vllm", "0.32.0") == []
    scaled = predict_adapter_service(stable, "sglang", "0.5.23", base=base).findings
    assert [finding.code for finding in scaled] == ["SRV017"]
    # alpha / sqrt(r) is 8 / 2, and so is 16 / 4.
    assert "lora_alpha to 16 and use_rslora to false" in scaled[0].remedy
    half = write_adapter(tmp_path / "half", layers=1)
    assert codes(half, base, "tgi", "3.3.7") == ["SRV015"]
    assert codes(half, base, "vllm", "0.32.0") == []
    alone = write_adapter(tmp_path / "alone", modules=("self_attn.q_proj",))
    assert codes(alone, base, "sglang", "0.5.23") == ["SRV014"]


def test_patterns_are_read_by_newer_releases_alone(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "MistralForCausalLM")
    adapter = write_adapter(tmp_path / "adapter", alpha_pattern={"q_proj": 32})
    assert codes(adapter, base, "vllm", "0.32.0") == []
    found = predict_adapter_service(adapter, "vllm", "0.18.1", base=base).findings
    assert [finding.code for finding in found] == ["SRV017"]
    assert found[0].count == 2
    assert "at 0.25 of the trained one" in found[0].message


@pytest.mark.parametrize(
    ("engine", "release", "architecture"),
    [
        ("vllm", "99.0", "LlamaForCausalLM"),
        ("vllm", "0.32.0", "NobodysForCausalLM"),
        ("tgi", "3.3.7", "Qwen3ForCausalLM"),
    ],
)
def test_what_is_not_known_is_not_judged(
    tmp_path: Path, engine: str, release: str, architecture: str
) -> None:
    base = write_base(tmp_path / "base", architecture)
    result = ask(write_adapter(tmp_path / "adapter"), base, engine, release)
    assert result.return_value == 3, result.output
    assert "not judged" in result.output


def test_experts_are_not_judged(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "Qwen3MoeForCausalLM")
    modules = (*QUERY_VALUE, "mlp.experts.0.gate_proj")
    adapter = write_adapter(tmp_path / "adapter", modules=modules)
    report = predict_adapter_service(adapter, "vllm", "0.32.0", base=base)
    assert report.exit_code() == 3
    assert not report.findings


def test_head_of_a_base_that_ties_it(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "LlamaForCausalLM")
    adapter = write_adapter(tmp_path / "adapter", "lm_head.", layers=0)
    name = "base_model.model.lm_head.lora_{}.weight"
    factors = {name.format("A"): (4, 16), name.format("B"): (32, 4)}
    tensors = {one: np.zeros(shape, np.float32) for one, shape in factors.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    for tied, exit_code in ((None, 3), (True, 1), (False, 0)):
        config = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
        (base / "config.json").write_text(json.dumps(config))
        report = predict_adapter_service(adapter, "llama.cpp", "0c1e57098", base=base)
        assert report.exit_code() == exit_code, tied


def test_usage(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    for arguments in (["--static"], ["--engine", "vllm"], ["--static", "--endpoint", "http://x"]):
        result = CliRunner().invoke(serve_check, [str(adapter), *arguments], standalone_mode=False)
        assert isinstance(result.exception, UsageError)
    with pytest.raises(UsageError, match="folder of an adapter"):
        predict_adapter_service(write_base(tmp_path / "base", "X"), "vllm", "0.32.0")


def test_export_renames_a_copy(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "Gemma3ForConditionalGeneration")
    adapter = write_adapter(tmp_path / "adapter")
    before = (adapter / "adapter_model.safetensors").read_bytes()
    arguments = [str(adapter), "--for", "vllm", "--engine-version", "0.32.0", "--base", str(base)]
    new = tmp_path / "renamed"
    made = CliRunner().invoke(export, [*arguments, "-o", str(new)], standalone_mode=False)
    assert made.return_value == 0, made.output
    assert codes(new, base, "vllm", "0.32.0") == []
    assert (adapter / "adapter_model.safetensors").read_bytes() == before
    renamed = load_file(new / "adapter_model.safetensors")
    first = "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight"
    assert first in renamed
    assert len(renamed) == 8
    # What is served as it is, is not copied; neither is anything written over.
    for name, out, words in ((new, "again", "nothing to rename"), (adapter, "renamed", "already")):
        arguments[0] = str(name)
        out_arguments = ["-o", str(tmp_path / out)]
        result = CliRunner().invoke(export, [*arguments, *out_arguments], standalone_mode=False)
        assert isinstance(result.exception, UsageError)
        assert words in str(result.exception)
    assert not (tmp_path / "again").exists()
