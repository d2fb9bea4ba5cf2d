"""What is not run here, and why; what is run smaller.

Each pattern is searched in a command, or in the code of a block.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
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
    Reason(r"docs/browser_check", "takes npm: tests/docs/test_browser_check.py builds it", 1),
    Reason(r"-m bench\.", "takes minutes: tests/bench runs it in small", 11),
)  # fmt: skip


def reason(command: str) -> Reason | None:
    """Why this is not run; None where it is."""
    return next((found for found in REASONS if re.search(found.pattern, command)), None)


SMALL = {
    "train": (
        "--no-rehearsal --set training.max_steps=2 --set watch.max_new_tokens=8 --set"
        " watch.prompts=2"
    ),
    "rehearse": "--rows 2 --laws none",
    "run": "--batches 2",
    "sample": "--max-new-tokens 16",
    "serve-check": "--longest 300",
}
"""What goes behind a command's name, where it is not given, to make it quick; the line as it is shown is parsed too"""


def quick(arguments: Sequence[str]) -> list[str]:
    """The same, with smaller numbers."""
    name, *rest = arguments
    more = shlex.split(SMALL.get(name, ""))
    given = {*rest} & {word for word in more if word.startswith("--")} - {"--set"}
    return [name, *(() if given else more), *rest]
