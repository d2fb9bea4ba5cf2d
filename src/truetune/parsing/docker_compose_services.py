"""The services of a compose file of Docker, each as the `docker run` that would start it.

Servers are started by compose files as often as by shell scripts. Written as commands, one set of rules judges both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import DataError
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.yaml_reader import parse_yaml

NAME = re.compile(r"(?:docker-)?compose(?:[.-][\w.-]+)?\.ya?ml$")
FROM = re.compile(r"^FROM\s+(?:--\S+\s+)?(\S+)", re.I | re.M)
OPTION = re.compile(r"(?:^|[\s\"'\[,])(--?[a-zA-Z][\w-]*|[A-Z][A-Z0-9_]{2,})(?=[\s=:\"',\]]|$)")


class Service(NamedTuple):
    """A service of a compose file."""

    line: int
    words: tuple[str, ...]
    """Of its command"""
    option_lines: Mapping[str, int]
    """Option or variable -> the line of the file on which it stands"""


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
    begins = {str(name): _line(text, str(name)) for name in named}
    return [
        Service(
            begins[str(name)],
            tuple(_words(service, path.parent)),
            option_lines(text, begins[str(name)], begins.values()),
        )
        for name, service in named.items()
        if isinstance(service, dict)
    ]


def option_lines(text: str, begin: int, begins: Iterable[int]) -> Mapping[str, int]:
    """The line of each option of the service that begins there, up to where the next one does."""
    end = min((one for one in begins if one > begin), default=len(text.splitlines()) + 1)
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()[begin - 1 : end - 1], begin):
        if not line.lstrip().startswith("#"):
            for option in OPTION.findall(line):
                found[option] = number
    return found


def _line(text: str, name: str) -> int:
    """The line on which a service begins."""
    lines = text.splitlines()
    return next((n for n, one in enumerate(lines, 1) if one.strip().startswith(f"{name}:")), 1)


def _words(service: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The words of `docker run --gpus all -e NAME=VALUE -v FOLDER:FOLDER IMAGE COMMAND`."""
    yield from ("docker", "run")
    yield from _gpu_options(service)
    yield from _environment_words(service)
    for one in _volumes_of(service):
        yield from ("-v", one)
    for one in _texts_of(service.get("env_file")):
        yield from ("--env-file", one)
    yield from _resource_words(service)
    image = _base_of_build(service, folder) or service.get("image")
    if isinstance(image, str):
        yield image
    for key in ("entrypoint", "command"):
        given = service.get(key)
        if isinstance(given, str):
            yield from split_words(given)
        elif isinstance(given, list):
            yield from map(str, given)


def _environment_words(service: Mapping[str, Any]) -> Iterator[str]:
    """The variables of a service, which stand as a mapping or as a list of NAME=VALUE."""
    environment = service.get("environment")
    if isinstance(environment, dict):
        environment = [f"{name}={value}" for name, value in environment.items()]
    for one in environment if isinstance(environment, list) else ():
        yield from ("-e", str(one))


def _volumes_of(service: Mapping[str, Any]) -> Iterator[str]:
    """The volumes of a service as `SOURCE:TARGET`; they stand as such texts, or as mappings with a type."""
    volumes = service.get("volumes")
    for one in volumes if isinstance(volumes, list) else [volumes]:
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict) and one.get("type") == "bind":
            yield f"{one.get('source')}:{one.get('target')}"


def _texts_of(value: Any) -> list[str]:
    """A text, or the texts of a list; empty for anything else."""
    given = value if isinstance(value, list) else [value]
    return [one for one in given if isinstance(one, str)]


def _gpu_options(service: Mapping[str, Any]) -> Iterator[str]:
    """The options of `docker run` by which a service is given GPUs."""
    # What a service that is extended asks for stands in another file.
    if "extends" in service:
        yield from ("--gpus", "$EXTENDED")
    if _reserves_generic_resources(service):
        yield from ("--gpus", "all")
    runtime = service.get("runtime")
    if isinstance(runtime, str):
        yield from ("--runtime", runtime)
    devices = service.get("devices")
    for device in devices if isinstance(devices, list) else ():
        yield from ("--device", str(device))
    if service.get("privileged"):
        yield "--privileged"


def _reserves_generic_resources(service: Mapping[str, Any]) -> bool:
    """Does a service of a swarm reserve `generic_resources`, by which GPUs are given out there?"""
    return bool(_reservations(service).get("generic_resources"))


def _reservations(service: Mapping[str, Any]) -> Mapping[str, Any]:
    """`deploy.resources.reservations`; empty where a service has none."""
    part: Any = service
    for key in ("deploy", "resources", "reservations"):
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def _base_of_build(service: Mapping[str, Any], folder: Path) -> str | None:
    """The image that a service which is built here is based on; None where its Dockerfile is not here."""
    build = service.get("build")
    if isinstance(build, str):
        build = {"context": build}
    if not isinstance(build, dict):
        return None
    context, name = build.get("context", "."), build.get("dockerfile", "Dockerfile")
    if not isinstance(context, str) or not isinstance(name, str):
        return None
    try:
        text = read_bounded(folder / context / name, SETTINGS).decode("utf-8", "replace")
    except (OSError, ValueError, InputLimitError):
        return None
    images = FROM.findall(text)
    return images[-1] if images else None


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
    devices = _reservations(service).get("devices")
    return [
        one
        for one in (devices if isinstance(devices, list) else [])
        if isinstance(one, dict) and "gpu" in str(one.get("capabilities", "gpu"))
    ]


def split_words(text: str) -> list[str]:
    """The words of a command; by blanks alone where its quotes do not close."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
