"""`transformers serve`, started once for all tests, and small models that it serves by their folders."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch
from filelock import FileLock

from tests.auditing import tiny

STARTED = 240.0
"""Seconds in which it must be up"""
_SERVE = """
import os, sys, threading, time
def watch():
    while True:
        try: os.kill({pid}, 0)
        except OSError: os._exit(0)
        time.sleep(0.5)
threading.Thread(target=watch, daemon=True).start()
from transformers.cli.transformers import main
sys.argv[1:] = ["serve", "--device", "cpu", "--port", "0"]
main()
"""


@pytest.fixture(scope="session")
def transformers_serve(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a server of any model folder, named by its path; it ends with the tests. One for all workers."""
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        pytest.skip("transformers[serving] is not installed")
    folder = shared(tmp_path_factory)
    log = folder / "transformers-serve.log"
    with FileLock(folder / "transformers-serve.lock"):
        if not log.exists():
            _start(log)
    return _url(log)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers that has learnt four chats by heart, with its tokenizer."""
    folder = shared(tmp_path_factory) / "tiny"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            taught().save_pretrained(folder)
            tiny.tokenizer().save_pretrained(folder)
    return folder


def shared(factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers of this run."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def taught(rows: int = 4) -> Any:
    """The tiny model after it has learnt some of `tiny.chats`."""
    tokenizer, model = tiny.tokenizer(), tiny.model(initializer_range=0.1)
    encoded = tiny.encoded(tiny.chats(rows))
    longest = max(len(row["input_ids"]) for row in encoded)
    ids = torch.tensor(
        [
            row["input_ids"] + [tokenizer.pad_token_id] * (longest - len(row["labels"]))
            for row in encoded
        ]
    )
    labels = torch.tensor(
        [row["labels"] + [-100] * (longest - len(row["labels"])) for row in encoded]
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model.eval()


def _start(log: Path) -> None:
    main = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    with log.open("w") as out:
        subprocess.Popen([sys.executable, "-c", _SERVE.format(pid=main)], stdout=out, stderr=out)


def _url(log: Path) -> str:
    until = time.monotonic() + STARTED
    while time.monotonic() < until:
        if found := re.search(r"http://\S+:\d+", log.read_text()):
            try:
                with urlopen(f"{found[0]}/health", timeout=5) as reply:
                    if reply.status == 200:
                        return found[0]
            except URLError:
                pass
        time.sleep(0.2)
    raise TimeoutError(f"transformers serve is not up: {log.read_text()[-2000:]}")
