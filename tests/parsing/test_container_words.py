"""Commands that start containers, read as if their programs ran on the host."""

from __future__ import annotations

import pytest

from truetune.parsing.container_command_on_host import command_words_on_host
from truetune.parsing.shell_commands import parse_command_file


def words(line: str) -> tuple[str, ...]:
    """The words of the one command of a script."""
    [command] = [
        one for one in parse_command_file(line, "serve.sh").commands if one.words[0] != "pwd"
    ]
    return command.words


@pytest.mark.parametrize(
    ("volume", "folder"),
    [
        ("-v $PWD/out:/models", "./out"),
        ('-v "${PWD}/out:/models:ro"', "./out"),
        ('-v "$(pwd)/out:/models"', "./out"),
        ("--volume=./out:/models", "./out"),
        ("--mount type=bind,source=/data/out,target=/models", "/data/out"),
        ("--mount type=bind,src=$PWD/out,dst=/models,readonly", "./out"),
    ],
)
@pytest.mark.parametrize("program", ["docker run", "podman run", "sudo docker run"])
def test_folders_of_a_container_are_named_as_on_the_host(
    program: str, volume: str, folder: str
) -> None:
    found = words(f"{program} --gpus all {volume} vllm/vllm-openai --model /models/a --port 80")
    assert found[-4:] == ("--model", f"{folder}/a", "--port", "80")


def test_folders_in_lists_and_json_are_renamed() -> None:
    line = (
        "docker run -v $PWD/out:/m vllm/vllm-openai --model=/m/base --lora-modules a=/m/a"
        """ '{"name": "b", "path": "/m/b"}'"""
    )
    found = words(line)
    assert "--model=./out/base" in found
    assert found[-2:] == ("a=./out/a", '{"name": "b", "path": "./out/b"}')


@pytest.mark.parametrize(
    "line",
    [
        "docker run -v models:/m vllm/vllm-openai --model /m/a",  # a volume with a name
        "docker run -v $DATA/out:/m vllm/vllm-openai --model /m/a",
        "docker run -v ./out:/m vllm/vllm-openai --model /media/a",
        "docker run -v ./out:/ vllm/vllm-openai --model /m/a",
        "docker run -v ./out:/m -e HF_HOME=/m/cache -w /m image python train.py",
        "docker run --mount type=volume,source=/x,target=/m vllm/vllm-openai --model /m/a",
        "rsync -v ./out:/m /m/a",
    ],
)
def test_what_is_not_known_stays_as_it_stands(line: str) -> None:
    assert words(line) == tuple(line.split())


def test_the_program_of_a_server_image_stands_behind_it() -> None:
    tgi = words("docker run ghcr.io/huggingface/text-generation-inference:3.3 --model-id org/a")
    assert tgi[3:] == ("text-generation-launcher", "--model-id", "org/a")
    llama = words("docker run -v ./g:/g ghcr.io/ggml-org/llama.cpp:server-cuda -m /g/a.gguf")
    assert llama[-3:] == ("llama-server", "-m", "./g/a.gguf")
    own = ["docker", "run", "--entrypoint", "bash", "ghcr.io/ggml-org/llama.cpp:server", "-c", "ls"]
    assert command_words_on_host(own) == tuple(own)
