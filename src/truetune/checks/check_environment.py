"""Checks the user's Python environment: reads its packages and GPUs, and lets the rules on
environments judge them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from truetune.checks.reports import Report, Subject
from truetune.checks.rule import EnvironmentRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.doctor.environment_record_types import PACKAGES, Environment
from truetune.doctor.gather_environment import Say, gather_environment, list_extras
from truetune.settings.run_spec import RunSpec

BYTES_PER_GB = 10**9
HEADLINE_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
"""Packages in the line that comes first"""


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorReport(Report):
    """The environment, and the findings."""

    environment: Environment

    def more(self) -> dict[str, Any]:
        """The packages, the GPUs and what torch reports, as the JSON of the report has them
        besides.
        """
        here, machine = self.environment, self.environment.machine
        return {
            "environment": {
                "python": here.python,
                "version": here.version,
                "system": here.system,
                "packages": training_package_versions(here),
                "loads": dict(here.loads),
                "extras": dict(here.extras),
                "gpus": [{"name": gpu.name, "memory": round(gpu.memory)} for gpu in machine.gpus],
                "torch": None if here.torch is None else _torch_facts(here),
                "cpus": machine.cpus,
                "memory": machine.memory,
                "cache": {
                    "folder": here.cache,
                    "writable": here.cache_writable,
                    "free": here.cache_free,
                },
                "shared_memory": here.shared,
                "open_files": here.files,
                "encoding": here.encoding,
            }
        }


def doctor(
    python: str | None = None,
    *,
    spec: RunSpec | None = None,
    load: bool = True,
    timeout: float = 120.0,
    say: Say = str,
) -> DoctorReport:
    """Check the environment of a Python interpreter, by default of this one.

    With `load` false, nothing is imported. Raises UsageError if `python` is no interpreter.
    """
    started = time.perf_counter()
    return judge_environment(
        gather_environment(python or sys.executable, load=load, timeout=timeout, say=say),
        spec or RunSpec(),
        started,
    )


def judge_environment(
    environment: Environment, spec: RunSpec, started: float | None = None
) -> DoctorReport:
    """What the rules say about an environment."""
    # A caller that gathered the environment itself counts the time for that as well.
    started = time.perf_counter() if started is None else started
    judgement = run_rules(environment, choose_rules(spec, EnvironmentRule))
    subject = Subject(
        f"Python {environment.version}", environment.python, tuple(_environment_facts(environment))
    )
    return DoctorReport(
        spec=spec,
        subjects=(subject,),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        environment=environment,
        seconds=time.perf_counter() - started,
    )


def training_package_versions(environment: Environment) -> dict[str, str]:
    """The installed versions of the packages that matter for training."""
    names = dict.fromkeys(
        (*PACKAGES, *(name for wanted in list_extras().values() for name in wanted))
    )
    return {name: environment.packages[name] for name in names if name in environment.packages}


def _environment_facts(here: Environment) -> Iterable[tuple[str, str]]:
    """Short facts for the report: the packages that matter most, and the GPUs."""
    yield from ((name, here.packages[name]) for name in HEADLINE_PACKAGES if name in here.packages)
    if here.machine.gpus:
        yield "GPU", f"{len(here.machine.gpus)} x {here.machine.gpus[0].name}"
    else:
        yield "GPU", "none"


def _torch_facts(here: Environment) -> dict[str, Any]:
    """What torch reports of CUDA, HIP, bf16, its devices and its compiled architectures, as plain
    values.
    """
    torch = here.torch
    assert torch is not None
    devices = [{"name": d.name, "capability": list(d.capability)} for d in torch.devices]
    return {
        "cuda": torch.cuda,
        "hip": torch.hip,
        "available": torch.available,
        "bf16": torch.bf16,
        "devices": devices,
        "architectures": list(torch.architectures),
    }
