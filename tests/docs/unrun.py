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
    """Commands and Python blocks of this kind on all pages: no more than was looked at"""


REASONS = (
    Reason(r"pip install", "installs from a package index: .ci/run runs the README's two", 0),
    Reason(r"s3://", "a store on the network: tests/encoding runs one of its own", 0),
    Reason(r"--accelerate-config", "needs several GPUs", 0),
    Reason(r"--launch", "two processes: tests/training/test_two_processes.py runs them", 0),
    Reason(r"axolotl|llamafactory|llama_factory\.yaml", "their pins exclude ours: tests/trainers/test_others.py", 0),
    Reason(r"vllm", "vLLM needs a GPU", 0),
    Reason(r"gguf", "llama.cpp is not among the tests' packages: tests/training/test_export.py", 0),
    Reason(r"--tasks", "lm-eval and its tasks come from the network", 0),
    Reason(r"jupyter execute", "Jupyter is not among the tests' packages", 0),
    Reason(r"-m bench\.", "takes minutes: tests/bench runs it in small", 0),
)


def reason(command: str) -> Reason | None:
    """Why this is not run; None where it is."""
    return next((found for found in REASONS if re.search(found.pattern, command)), None)
