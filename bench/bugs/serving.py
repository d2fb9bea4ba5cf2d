"""Servers for cases: `transformers serve`, and a small engine that serves an adapter. They end with the bench."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.bugs.warm import environment
from tests.parts.shelf import Missing

STARTED = 240.0
"""Seconds in which a server must be up"""
SERVE = "from transformers.cli.transformers import main; main()"


@cache
def endpoint() -> str:
    """URL of `transformers serve`, which serves every folder by its path. Raises Missing."""
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise Missing("transformers[serving] is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", "--device", "cpu", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    atexit.register(process.terminate)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + STARTED
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), urlopen(f"{url}/health", timeout=5):
            return url
        time.sleep(0.2)
    raise Missing("transformers serve does not start")


def engine(folder: Path) -> str:
    """URL of an engine that puts the adapter in `folder/served` on the base in `folder/model`, by peft, and tells
    log-probabilities."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.generation.imitated_server import Completions, started

    tokenizer = AutoTokenizer.from_pretrained(folder / "served")
    base = AutoModelForCausalLM.from_pretrained(folder / "model")
    completions = Completions(
        PeftModel.from_pretrained(base, str(folder / "served")).eval(),
        tokenizer,
        {"ids", "echo", "logprobs"},
    )

    def handle(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        if path != "/v1/chat/completions":
            return completions(path, body, headers)
        ids = tokenizer.apply_chat_template(
            body["messages"], tools=body.get("tools"), add_generation_prompt=True, return_dict=False
        )
        made = completions(
            "/v1/completions", {"prompt": ids, "max_tokens": body.get("max_tokens", 16)}, headers
        )
        for choice in made["choices"]:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return made

    return started(handle)
