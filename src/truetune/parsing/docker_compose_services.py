"""The services of a compose file of Docker, each as the `docker run` that would start it.

Servers are started by compose files as often as by shell scripts. Written as commands, one set of rules judges both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.yaml_reader import parse_yaml

NAME = re.compile(r"(?:docker-)?compose(?:[.-][\w.-]+)?\.ya?ml$")
Service = tuple[int, tuple[str, ...]]
"""The line of a service, and the words of its command"""


def is_compose_file(path: Path) -> bool:
    """Does the name say that it is a compose file?"""
    return NAME.fullmatch(path.name) is not None


def services(path: Path) -> list[Service]:
    """The services of a compose file; none where it names none. Raises DataError where it can't be read."""
    try:
        text = read_bounded(path, SETTINGS).decode("utf-8-sig")
        content = parse_yaml(text).value
    except (OSError, UnicodeDecodeError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    named = content.get("services") if isinstance(content, dict) else None
    if not isinstance(named, dict):
        return []
    return [
        (_line(text, str(name)), tuple(_words(service)))
        for name, service in named.items()
        if isinstance(service, dict)
    ]


def _line(text: str, name: str) -> int:
    """The line on which a service begins."""
    lines = text.splitlines()
    return next((n for n, one in enumerate(lines, 1) if one.strip().startswith(f"{name}:")), 1)


def _words(service: Mapping[str, Any]) -> Iterator[str]:
    """The words of `docker run -e NAME=VALUE -v FOLDER:FOLDER IMAGE COMMAND`."""
    yield from ("docker", "run")
    environment = service.get("environment")
    if isinstance(environment, dict):
        environment = [f"{name}={value}" for name, value in environment.items()]
    for one in environment if isinstance(environment, list) else ():
        yield from ("-e", str(one))
    volumes = service.get("volumes")
    for one in volumes if isinstance(volumes, list) else ():
        if isinstance(one, str):
            yield from ("-v", one)
    files = service.get("env_file")
    for one in [files] if isinstance(files, str) else files if isinstance(files, list) else ():
        if isinstance(one, str):
            yield from ("--env-file", one)
    yield from _resource_words(service)
    image = service.get("image")
    if isinstance(image, str):
        yield image
    for key in ("entrypoint", "command"):
        given = service.get(key)
        if isinstance(given, str):
            yield from _split(given)
        elif isinstance(given, list):
            yield from map(str, given)


def _resource_words(service: Mapping[str, Any]) -> Iterator[str]:
    """The options of `docker run` for the GPUs and the shared memory of a service."""
    for key, option in (("shm_size", "--shm-size"), ("ipc", "--ipc")):
        given = service.get(key)
        if isinstance(given, str | int):
            yield f"{option}={given}"
    mounts = service.get("tmpfs")
    for one in [mounts] if isinstance(mounts, str) else mounts if isinstance(mounts, list) else ():
        yield f"--tmpfs={one}"
    gpus = service.get("gpus")
    if isinstance(gpus, str | int):
        yield f"--gpus={gpus}"
    for device in [*(gpus if isinstance(gpus, list) else ()), *_reserved_devices(service)]:
        if not isinstance(device, dict):
            continue
        named = device.get("device_ids")
        if isinstance(named, list):
            yield f"--gpus=device={','.join(map(str, named))}"
        else:
            yield f"--gpus={device.get('count', 'all')}"


def _reserved_devices(service: Mapping[str, Any]) -> list[Any]:
    """`deploy.resources.reservations.devices`, as far as it names GPUs."""
    part: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        part = part.get(key) if isinstance(part, dict) else None
    devices = part if isinstance(part, list) else []
    return [
        one for one in devices if isinstance(one, dict) and "gpu" in str(one.get("capabilities"))
    ]


def _split(text: str) -> list[str]:
    """The words of a command; by blanks alone where its quotes do not close."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
