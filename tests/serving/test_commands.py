"""The printed commands name the template, the stops and the adapter of the model."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from truetune.cli.serve_check_command import serve_check
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.generation.backends.model_source import find_model_source
from truetune.serving.write_server_start_commands import StartCommand, make_start_command


def lay(folder: Path, **generation: object) -> Path:
    """A model's folder, without weights."""
    shutil.copytree(TOKENIZER, folder)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    if generation:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def adapt(folder: Path, base: Path, rank: int = 12) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"r": rank, "base_model_name_or_path": str(base)})
    )
    (folder / "adapter_model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return folder


def printed(folder: Path, engine: str, **named: str) -> StartCommand:
    place = find_model_source(str(folder), **named)
    return make_start_command(place, place.prepared(), engine)


def words(command: StartCommand) -> list[str]:
    return shlex.split(command.text.replace("\\\n", " "))


def after(name: str, command: StartCommand) -> str:
    found = words(command)
    return found[found.index(name) + 1]


def test_vllm_with_an_adapter(tmp_path: Path) -> None:
    base = lay(tmp_path / "a base", eos_token_id=[1, 2])
    command = printed(adapt(tmp_path / "tuned", base), "vllm")
    assert words(command)[:3] == ["vllm", "serve", str(base)]
    assert after("--max-lora-rank", command) == "16"
    assert after("--lora-modules", command) == f"tuned={tmp_path / 'tuned'}"
    assert after("--max-model-len", command) == "512"
    assert after("--generation-config", command) == str(base)
    assert "--tokenizer" not in words(command)
    assert 'ask for the model "tuned"' in command.notes[0]


def test_the_tokenizer_of_the_adapter_is_served(tmp_path: Path) -> None:
    base = lay(tmp_path / "base")
    tuned = adapt(tmp_path / "tuned", base)
    for path in TOKENIZER.iterdir():
        shutil.copy(path, tuned)
    for engine, option in (("vllm", "--tokenizer"), ("sglang", "--tokenizer-path")):
        assert after(option, printed(tuned, engine)) == str(tuned)


def test_a_rank_that_vllm_does_not_serve(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="truetune merge"):
        printed(adapt(tmp_path / "tuned", lay(tmp_path / "base"), rank=1024), "vllm")


def test_a_stop_that_is_not_served_is_said(tmp_path: Path) -> None:
    kept, lost = lay(tmp_path / "kept"), lay(tmp_path / "lost", eos_token_id=0)
    assert printed(kept, "sglang").notes == ()
    assert "stop_token_ids" in printed(lost, "sglang").notes[0]


def test_llama_cpp_wants_a_file(tmp_path: Path) -> None:
    base = lay(tmp_path / "base")
    with pytest.raises(UsageError, match=r"truetune merge .*truetune export"):
        printed(adapt(tmp_path / "tuned", base), "llama.cpp")
    file = base / "model.gguf"
    file.write_bytes(b"GGUF")
    command = printed(file, "llama.cpp")
    assert after("--model", command) == str(file)
    assert after("--ctx-size", command) == "512"


def test_ollama(tmp_path: Path) -> None:
    place = find_model_source(str(lay(tmp_path / "base", temperature=0.6)))
    probes = place.prepared()
    command = make_start_command(place, probes, "ollama")
    lines = command.text.splitlines()
    assert lines[0] == f"FROM {tmp_path / 'base'}"
    assert probes.terminator is not None
    assert f"PARAMETER stop {json.dumps(probes.terminator.text)}" in lines
    assert "PARAMETER temperature 0.6" in lines
    assert '{{ else if eq .Role "assistant" }}' in command.text
    assert not any("temperature" in note for note in command.notes)


def test_an_endpoint_and_an_unknown_engine(tmp_path: Path) -> None:
    base = lay(tmp_path / "base")
    with pytest.raises(UsageError, match="not for an endpoint"):
        make_start_command(
            find_model_source("http://localhost:1", tokenizer=str(base)),
            find_model_source(str(base)).prepared(),
            "vllm",
        )
    with pytest.raises(UsageError, match="expected one of vllm, sglang"):
        printed(base, "tgi")


def test_the_option(tmp_path: Path) -> None:
    base = lay(tmp_path / "base", eos_token_id=0)
    done = CliRunner().invoke(serve_check, [str(base), "--print", "vllm"], standalone_mode=False)
    assert done.return_value == 0
    assert done.stdout.startswith(f"vllm serve {base}")
    assert "stop_token_ids" in done.stderr
    both = CliRunner().invoke(serve_check, [str(base), "--print", "vllm", "--endpoint", "http://x"])
    assert isinstance(both.exception, UsageError)
