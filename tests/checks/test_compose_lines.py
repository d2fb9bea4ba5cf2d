"""Options of compose files are shown at their own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.parsing.shell_commands import read_command_file

FOLDED = """services:
  first:
    image: vllm/vllm-openai
    command: >
      --model /m
      --max-num-seqs 4
  second:
    image: ollama/ollama
    environment:
      # OLLAMA_NUM_PARALLEL=2
      - OLLAMA_NUM_PARALLEL=1
    command: ["serve", "--max-num-seqs", "1"]
"""


@pytest.mark.parametrize(
    ("service", "text", "line"),
    [
        (0, "--max-num-seqs 4", 6),
        (0, "--model=/m", 5),
        (1, "--max-num-seqs 1", 12),
        (1, "OLLAMA_NUM_PARALLEL=1", 11),
        (0, "--enforce-eager", 2),
        (1, "--model", 7),
    ],
)
def test_the_line_of_an_option(tmp_path: Path, service: int, text: str, line: int) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(FOLDED, encoding="utf-8")
    assert read_command_file(file).commands[service].line_of(text) == line


def test_a_shell_script_keeps_the_line_of_its_command(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("#!/bin/sh\nvllm serve m --max-num-seqs 1\n", encoding="utf-8")
    assert read_command_file(file).commands[0].line_of("--max-num-seqs 1") == 2
