"""What is not run here, and why. Each pattern is searched in a command, or in the code of a block."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some commands are not run."""

    pattern: str
    why: str
    count: int
    """Commands of this kind on all pages: more are to be looked at first"""


REASONS = (
    Reason(r"pip install", "installs from a package index; .ci/run runs the README's two", 6),
    Reason(r"axolotl train|llamafactory-cli|rehearse (axolotl|llama_factory)\.yaml|venv llamaf|TRUETUNE_AXOLOTL=",
           "Axolotl and LLaMA-Factory can't be installed beside the tests: tests/trainers/test_others.py", 10),
    Reason(r"\bssh ", "another machine", 1),
    Reason(r"truetune demo", "trains for a minute: .ci/run runs it without torch, tests/demo with it", 1),
    Reason(r"s3://", "a store on the network; tests/encoding/test_remote.py has its own", 2),
    Reason(r"--launch", "starts several processes: tests/training/test_two_processes.py, test_launch.py", 3),
    Reason(r"--backend vllm|--vllm", "vLLM needs a GPU", 2),
    Reason(r"\.gguf|--to gguf", "llama.cpp is compiled for minutes: tests/training/test_export.py, bench/engines", 3),
    Reason(r"--tasks", "lm-eval takes its tasks from the network", 1),
    Reason(r"jupyter execute", "Jupyter is not among the tests' packages", 1),
    Reason(r"-m bench\.", "takes minutes: tests/bench runs it in small", 8),
)  # fmt: skip


def reason(command: str) -> Reason | None:
    """Why this is not run; None where it is."""
    return next((found for found in REASONS if re.search(found.pattern, command)), None)
