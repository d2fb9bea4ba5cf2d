"""Gathers the facts on an environment: its interpreter is asked in processes of its own, so that
what is broken there breaks nothing here.

`examine_interpreter_from_inside` runs inside; it tells versions without an import, then tries imports one by one. A
crash or a hang is laid to the module that had begun. The trade-off: imports of torch and its like take half a minute,
and only they show what a version number does not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from select import select
from typing import Any

from truetune.doctor import examine_interpreter_from_inside
from truetune.doctor.environment_record_types import (
    PACKAGES,
    Device,
    Environment,
    Requirement,
    Torch,
)
from truetune.errors import UsageError
from truetune.memory.read_machine import read_machine
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json

IMPORTED_MODULES = {
    "torch": "torch",
    "numpy": "numpy",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "accelerate": "accelerate",
    "datasets": "datasets",
    "peft": "peft",
    "trl": "trl",
    "bitsandbytes": "bitsandbytes",
    "flash-attn": "flash_attn",
    "liger-kernel": "liger_kernel",
}
"""Modules that are imported, by distribution; not those that change others as they load (unsloth), or take long"""
INSPECTION_SCRIPT = examine_interpreter_from_inside.__file__
# Not `test` and `docs`, which are for the development of truetune itself.
USER_EXTRAS = ("hub", "fast", "ray", "train", "qlora", "vllm", "llama", "lm-eval")
"""Extras of truetune that users ask for"""
Say = Callable[[str], object]


def gather_environment(
    python: str, *, load: bool = True, timeout: float = 120.0, say: Say = str
) -> Environment:
    """Gather the environment of an interpreter, on this machine.

    Args:
        python: its path or name.
        load: try imports too.
        timeout: seconds for one import.
        say: is told what is tried.

    Raises:
        UsageError: there is no such interpreter.
    """
    answer = _query_packages(python)
    packages: dict[str, str] = answer["packages"]
    loads, torch_facts = (
        _try_imports_and_ask_torch(python, packages, timeout, say) if load else ({}, None)
    )
    cache = _find_hub_cache(os.environ)
    return Environment(
        python=python,
        version=answer["version"],
        system=answer["system"],
        encoding=answer["encoding"],
        packages=packages,
        requirements=tuple(
            _requirements_on_installed_packages(answer["requires"], packages, answer["version"])
        ),
        loads=loads,
        torch=parse_torch_facts(torch_facts) if torch_facts else None,
        machine=read_machine(),
        variables=dict(os.environ),
        cache=str(cache),
        cache_writable=_is_writable(cache),
        cache_free=_free_disk_bytes(cache),
        shared=_filesystem_bytes(Path("/dev/shm")),
        files=_open_file_limit(),
        extras={
            name: _are_all_installed(needed, packages) for name, needed in list_extras().items()
        },
    )


def parse_torch_facts(facts: Mapping[str, Any]) -> Torch:
    """The facts on torch, from what `examine_interpreter_from_inside` printed."""
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


def _query_packages(python: str) -> dict[str, Any]:
    """Ask an interpreter for its version and packages. Raises UsageError where it is none."""
    command = [python, INSPECTION_SCRIPT, "packages", *PACKAGES]
    try:
        # A minute: on a network drive the metadata of some hundred packages are slow to read.
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return dict(parse_json(done.stdout, REPLY))
    except OSError as error:
        raise UsageError(f"{python}: can't be started: {error.strerror}") from None
    except (subprocess.SubprocessError, ValueError):
        raise UsageError(f"{python}: is no Python interpreter of version 3.8 or later") from None


def _try_imports_and_ask_torch(
    python: str, packages: Mapping[str, str], timeout: float, say: Say
) -> tuple[dict[str, str], Any]:
    """Try the imports; returns what each import said, and torch's facts. After a crash or a hang,
    the rest is tried in another process.
    """
    # Only what is installed: anything else is no broken import.
    left = [module for name, module in IMPORTED_MODULES.items() if name in packages]
    loads: dict[str, str] = {}
    torch_facts = None
    while left:
        say(f"importing {', '.join(left)}")
        lines, end = _run_until_silent([python, INSPECTION_SCRIPT, "load", *left], timeout)
        outcomes, new_facts = _import_outcomes_and_torch_facts(lines, end)
        # A process that died before its first line is laid to the first module, or the loop would never end.
        loads |= outcomes or {left[0]: end}
        torch_facts = new_facts or torch_facts
        left = [module for module in left if module not in loads]
    return loads, torch_facts


def _import_outcomes_and_torch_facts(
    lines: Sequence[Mapping[str, Any]], end: str
) -> tuple[dict[str, str], Any]:
    """What each import said, by module, and torch's facts. Of a module without a line: how the
    process ended.
    """
    outcomes: dict[str, str] = {}
    torch_facts = None
    for line in lines:
        if "begins" in line:
            outcomes[line["begins"]] = end
        elif "done" in line:
            outcomes[line["done"]] = line["error"]
            torch_facts = line["facts"] or torch_facts
    return outcomes, torch_facts


def _run_until_silent(command: list[str], timeout: float) -> tuple[list[dict[str, Any]], str]:
    """Run a program until it ends or prints no line for `timeout` seconds; returns its lines, and
    how it ended.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdout is not None
    output, is_silent = b"", True
    try:
        with process.stdout as stdout:
            # `select`, for a read would wait for ever; without a buffer, which select does not see.
            while select([stdout], [], [], timeout)[0]:
                more = stdout.read(1 << 16)
                if not more:
                    is_silent = False
                    break
                output += more
    finally:
        # Also after an interrupt: no interpreter is left behind.
        if is_silent:
            process.kill()
        process.wait()
    if is_silent:
        return _parse_lines(output), f"not done after {timeout:.0f} s"
    code = process.returncode
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return _parse_lines(output), f"the interpreter crashed ({how})"


def _parse_lines(output: bytes) -> list[dict[str, Any]]:
    """The whole lines of JSON; a crash may have cut the last."""
    lines = output.decode("utf-8", "replace").splitlines()
    return [parse_json(line, REPLY) for line in lines if line.endswith("}")]


def _requirements_on_installed_packages(
    requires: Mapping[str, list[str]], packages: Mapping[str, str], version: str
) -> Iterable[Requirement]:
    """The requirements on packages that are installed, without those of extras and other systems."""
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    # Markers are judged for that interpreter, not for ours.
    marker_values = {
        "extra": "",
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
    }
    for package, texts in requires.items():
        for text in texts:
            try:
                parsed = Parsed(text)
            except InvalidRequirement:
                # Old packages have texts that no tool reads any more.
                continue
            needed = examine_interpreter_from_inside.canonical_package_name(parsed.name)
            if needed not in PACKAGES or needed not in packages:
                continue
            if parsed.marker is None or parsed.marker.evaluate(marker_values):
                yield Requirement(package, needed, str(parsed.specifier))


def list_extras() -> dict[str, tuple[str, ...]]:
    """The extras of truetune, each with the distributions that it asks for."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement as Parsed

    try:
        requirements = [Parsed(text) for text in requires("truetune") or ()]
    except PackageNotFoundError:
        return {}
    distributions: dict[str, set[str]] = {}
    for requirement in requirements:
        marker = requirement.marker
        # `truetune[train]` inside another extra is no distribution of its own.
        if marker is None or requirement.extras or marker.evaluate({"extra": ""}):
            continue
        for name in USER_EXTRAS:
            if marker.evaluate({"extra": name}):
                distribution = examine_interpreter_from_inside.canonical_package_name(
                    requirement.name
                )
                distributions.setdefault(name, set()).add(distribution)
    return {name: tuple(sorted(needed)) for name, needed in distributions.items()}


def _are_all_installed(needed: Iterable[str], packages: Mapping[str, str]) -> bool:
    """Is each of these distributions installed?"""
    return all(name in packages for name in needed)


def _find_hub_cache(variables: Mapping[str, str]) -> Path:
    """The folder where huggingface_hub keeps what it downloads, by the variables and in the order
    that it reads.
    """
    home = variables.get("HF_HOME") or Path(
        variables.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(variables.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def _nearest_existing_folder(path: Path) -> Path:
    """The nearest folder that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _is_writable(path: Path) -> bool:
    """Can files be made in a folder? Of one that is not there yet, the nearest above decides."""
    return os.access(_nearest_existing_folder(path.absolute()), os.W_OK | os.X_OK)


def _free_disk_bytes(path: Path) -> int | None:
    """Free bytes of the disk; None where that can't be told."""
    try:
        return shutil.disk_usage(_nearest_existing_folder(path.absolute())).free
    except OSError:
        return None


def _filesystem_bytes(path: Path) -> int | None:
    """Bytes of a file system; None where there is none."""
    try:
        return shutil.disk_usage(path).total
    except OSError:
        return None


def _open_file_limit() -> int | None:
    """How many files a process may have open; None where it is not limited, or on Windows."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
