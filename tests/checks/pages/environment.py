"""Blocks that are an environment.

The blocks are YAML: `packages` by name; `requirements` [[package, of, specifier]]; `loads`, `torch` as in
`truetune.doctor.environment_record_types`; `gpus`, how many the driver knows; `cache`, `shared_mb`, `variables`,
`encoding`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.doctor.environment_record_types import Environment, Requirement
from truetune.doctor.gather_environment import parse_torch_facts
from truetune.memory.read_machine import Gpu, Machine

TORCH: dict[str, Any] = {
    "cuda": None,
    "hip": None,
    "available": False,
    "devices": [],
    "architectures": [],
    "said": "",
    "bf16": None,
}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(environment(yaml.safe_load(text))).findings())


def environment(example: dict[str, Any]) -> Environment:
    """The environment of a block."""
    cache, variables = example.get("cache", {}), example.get("variables", {})
    return Environment(
        python="python", version="3.11.9", system="Linux", encoding=example.get("encoding", "UTF-8"),
        packages={name: str(version) for name, version in example.get("packages", {}).items()},
        requirements=tuple(Requirement(*item) for item in example.get("requirements", [])),
        loads=example.get("loads", {}),
        torch=parse_torch_facts(TORCH | example["torch"]) if "torch" in example else None,
        machine=Machine((Gpu("NVIDIA GPU", 2**34),) * example.get("gpus", 0), None, None, variables),
        variables=variables, cache=cache.get("path", "cache"), cache_writable=cache.get("writable", True),
        cache_free=int(cache.get("free_gb", 100) * 1e9), shared=example.get("shared_mb", 2**14) * 2**20,
    )  # fmt: skip
