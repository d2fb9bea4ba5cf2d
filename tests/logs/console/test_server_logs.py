"""Which lines make a text the log of a server: what a server prints, and not what people type or write about it."""

from __future__ import annotations

import pytest

from truetune.logs.console.printed_settings import SettingsReader

TYPED = "$ vllm serve out/sft --max-model-len 4096"


@pytest.mark.parametrize(
    ("lines", "program"),
    [
        ((TYPED, "accuracy 0.41", "rouge 0.22"), ""),
        (("vllm serve Qwen/Qwen2.5-7B", ">>> Hello", "Hello! How can I help you?"), ""),
        ((">>> Hello", "Hello! How can I help you?"), ""),
        (("We serve it by text-generation-launcher behind nginx.",), ""),
        (("text-generation-launcher --model-id out/sft", "exact match 0.4"), ""),
        (("Then run vllm serve ./merged and compare.",), ""),
        # An engine inside of a script prints the same lines.
        (("INFO 06-12 10:21:03 [config.py:717] This model supports multiple tasks",), ""),
        ((TYPED, "INFO 06-12 10:21:03 [config.py:717] This model supports tasks"), "vLLM"),
        (("INFO 06-12 10:21:03 [api_server.py:1043] vLLM API server version 0.8.5",), "vLLM"),
        (("2025-05-01T09:59:00Z  INFO text_generation_launcher: Args {",), "TGI"),
        (("INFO text_generation_router::server: Connected",), "TGI"),
        (("INFO:     Uvicorn running on http://0.0.0.0:8000",), "an HTTP server"),
    ],
)
def test_typed_commands_and_prose_are_no_log_of_a_server(
    lines: tuple[str, ...], program: str
) -> None:
    reader = SettingsReader()
    for line in lines:
        reader.add_line(line)
    assert reader.finish().server == program
