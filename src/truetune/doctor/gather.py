"""Gathering an environment: its interpreter is asked in processes of their own, so that what is broken there breaks
nothing here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from select import select
from typing import Any

from truetune.doctor import inside
from truetune.doctor.environment import PACKAGES, Device, Environment, Requirement, Torch
from truetune.errors import UsageError
from truetune.memory.read_machine import read_machine
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import REPLY

LOADED = {
    "torch": "torch", "numpy": "numpy", "transformers": "transformers", "tokenizers": "tokenizers",
    "accelerate": "accelerate", "datasets": "datasets", "peft": "peft", "trl": "trl", "bitsandbytes": "bitsandbytes",
    "flash-attn": "flash_attn", "liger-kernel": "liger_kernel",
}  # fmt: skip
"""Modules that are imported, by distribution; not those that change others as they load (unsloth), or take long"""
SCRIPT = inside.__file__
Say = Callable[[str], object]


def gather(
    python: str, *, load: bool = True, timeout: float = 120.0, say: Say = str
) -> Environment:
    """The environment of an interpreter, on this machine. `timeout`: seconds for one import.

    Raises UsageError where there is no interpreter.
    """
    known = _packages(python)
    packages: dict[str, str] = known["packages"]
    loads, facts = _load(python, packages, timeout, say) if load else ({}, None)
    cache = _cache(os.environ)
    return Environment(
        python=python,
        version=known["version"],
        system=known["system"],
        encoding=known["encoding"],
        packages=packages,
        requirements=tuple(_requirements(known["requires"], packages, known["version"])),
        loads=loads,
        torch=torch_of(facts) if facts else None,
        machine=read_machine(),
        variables=dict(os.environ),
        cache=str(cache),
        cache_writable=_writable(cache),
        cache_free=_free(cache),
        shared=_size(Path("/dev/shm")),
        files=_files(),
        extras={name: _has(wanted, packages) for name, wanted in extras().items()},
    )


def torch_of(facts: Mapping[str, Any]) -> Torch:
    """From what `inside` says."""
    devices = tuple(
        Device(name, (capability[0], capability[1])) for name, capability in facts["devices"]
    )
    return Torch(
        cuda=facts["cuda"],
        hip=facts["hip"],
        available=facts["available"],
        devices=devices,
        architectures=tuple(facts["architectures"]),
        said=facts["said"],
        bf16=facts["bf16"],
    )


def _packages(python: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, SCRIPT, "packages", *PACKAGES], capture_output=True, text=True, timeout=60
        )
        return dict(parse_json(done.stdout, REPLY))
    except OSError as error:
        raise UsageError(f"{python}: can't be started: {error.strerror}") from None
    except (subprocess.SubprocessError, ValueError):
        raise UsageError(f"{python}: is no Python interpreter of version 3.8 or later") from None


def _load(
    python: str, packages: Mapping[str, str], timeout: float, say: Say
) -> tuple[dict[str, str], Any]:
    """What each import said, and torch's facts; after a crash or a hang, the rest in another process."""
    left = [module for name, module in LOADED.items() if name in packages]
    loads: dict[str, str] = {}
    facts = None
    while left:
        say(f"importing {', '.join(left)}")
        lines, end = _run([python, SCRIPT, "load", *left], timeout)
        for line in lines:
            if "done" in line:
                loads[line["done"]] = line["error"]
                facts = line["facts"] or facts
        begun = [line["begins"] for line in lines if "begins" in line] or left[:1]
        loads |= {module: end for module in begun if module not in loads}
        left = [module for module in left if module not in loads]
    return loads, facts


def _run(command: list[str], timeout: float) -> tuple[list[dict[str, Any]], str]:
    """The lines that it said, and how it ended: at the latest when no line came for `timeout` seconds."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdout is not None
    said, late = b"", True
    try:
        with process.stdout as stdout:
            while select([stdout], [], [], timeout)[0]:
                if not (more := stdout.read(1 << 16)):
                    late = False
                    break
                said += more
    finally:
        if late:
            process.kill()
        process.wait()
    if late:
        return _lines(said), f"not done after {timeout:.0f} s"
    how = (
        f"signal {-process.returncode}"
        if process.returncode < 0
        else f"exit code {process.returncode}"
    )
    return _lines(said), f"the interpreter crashed ({how})"


def _lines(output: bytes) -> list[dict[str, Any]]:
    return [
        parse_json(line, REPLY)
        for line in output.decode("utf-8", "replace").splitlines()
        if line.endswith("}")
    ]


def _requirements(
    requires: Mapping[str, list[str]], packages: Mapping[str, str], version: str
) -> Iterable[Requirement]:
    """Those on the packages that are told, without those of extras and other systems."""
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    there = {
        "extra": "",
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
    }
    for package, texts in requires.items():
        for text in texts:
            try:
                parsed = Parsed(text)
            except InvalidRequirement:
                continue
            of = inside.canonical(parsed.name)
            if (
                of in PACKAGES
                and of in packages
                and (parsed.marker is None or parsed.marker.evaluate(there))
            ):
                yield Requirement(package, of, str(parsed.specifier))


def extras() -> dict[str, tuple[str, ...]]:
    """The extras of truetune, each with the distributions that it asks for; what is for its own development is left
    out."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement as Parsed

    try:
        parsed = [Parsed(text) for text in requires("truetune") or ()]
    except PackageNotFoundError:
        return {}
    found: dict[str, set[str]] = {}
    for item in parsed:
        for name in ("hub", "fast", "ray", "train", "qlora", "vllm", "llama", "lm-eval"):
            if (
                item.marker is not None
                and item.marker.evaluate({"extra": name})
                and not item.extras
            ):
                if not item.marker.evaluate({"extra": ""}):
                    found.setdefault(name, set()).add(inside.canonical(item.name))
    return {name: tuple(sorted(wanted)) for name, wanted in found.items()}


def _has(wanted: Iterable[str], packages: Mapping[str, str]) -> bool:
    return all(name in packages for name in wanted)


def _cache(variables: Mapping[str, str]) -> Path:
    """As huggingface_hub finds it."""
    home = variables.get("HF_HOME") or Path(
        variables.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(variables.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def _above(path: Path) -> Path:
    """The nearest folder that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _writable(path: Path) -> bool:
    return os.access(_above(path.absolute()), os.W_OK | os.X_OK)


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(_above(path.absolute())).free
    except OSError:
        return None


def _size(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).total
    except OSError:
        return None


def _files() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
