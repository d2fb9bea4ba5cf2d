"""Reads the services of a Docker compose file, each as the `docker run` command that would start
it.

Servers are started by compose files as often as by shell scripts. Written as commands, one set of rules judges both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import DataError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

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


def services_as_docker_run(path: Path) -> list[Service]:
    """The services of a compose file as `docker run` commands; empty if it names none. Raises
    DataError if it can't be read.
    """
    try:
        text = read_bytes_within_limit(path, SETTINGS).decode("utf-8-sig")
        content = parse_yaml(text).value
    except (OSError, UnicodeDecodeError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    named = content.get("services") if isinstance(content, dict) else None
    if not isinstance(named, dict):
        return []
    begins = {str(name): _first_line_of_service(text, str(name)) for name in named}
    return [
        Service(
            begins[str(name)],
            tuple(_docker_run_words(service, path.parent)),
            option_line_numbers(text, begins[str(name)], begins.values()),
        )
        for name, service in named.items()
        if isinstance(service, dict)
    ]


def option_line_numbers(text: str, begin: int, begins: Iterable[int]) -> Mapping[str, int]:
    """The line number of each option or variable of the service that begins at line `begin`, up to
    the line where the next service begins.
    """
    end = min((one for one in begins if one > begin), default=len(text.splitlines()) + 1)
    lines_by_option: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()[begin - 1 : end - 1], begin):
        if not line.lstrip().startswith("#"):
            for option in OPTION.findall(line):
                lines_by_option[option] = number
    return lines_by_option


def _first_line_of_service(text: str, name: str) -> int:
    """The line on which the service of this name begins; 1 if it is not found."""
    lines = text.splitlines()
    return next((n for n, one in enumerate(lines, 1) if one.strip().startswith(f"{name}:")), 1)


def _docker_run_words(service: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The words of `docker run --gpus all -e NAME=VALUE -v FOLDER:FOLDER IMAGE COMMAND` for one
    service.
    """
    yield from ("docker", "run")
    yield from _gpu_access_options(service)
    yield from _environment_options(service)
    for one in _volumes_as_source_and_target(service):
        yield from ("-v", one)
    for one in _as_list_of_texts(service.get("env_file")):
        yield from ("--env-file", one)
    yield from _memory_and_gpu_count_options(service)
    image = _base_image_of_dockerfile(service, folder) or service.get("image")
    if isinstance(image, str):
        yield image
    for key in ("entrypoint", "command"):
        given = service.get(key)
        if isinstance(given, str):
            yield from split_command(given)
        elif isinstance(given, list):
            yield from map(str, given)


def _environment_options(service: Mapping[str, Any]) -> Iterator[str]:
    """`-e NAME=VALUE` for each variable of a service, which are a mapping or a list of NAME=VALUE."""
    environment = service.get("environment")
    if isinstance(environment, dict):
        environment = [f"{name}={value}" for name, value in environment.items()]
    for one in environment if isinstance(environment, list) else ():
        yield from ("-e", str(one))


def _volumes_as_source_and_target(service: Mapping[str, Any]) -> Iterator[str]:
    """The volumes of a service as `SOURCE:TARGET` texts, from such texts or from bind mounts
    written as mappings.
    """
    volumes = service.get("volumes")
    for one in volumes if isinstance(volumes, list) else [volumes]:
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict) and one.get("type") == "bind":
            yield f"{one.get('source')}:{one.get('target')}"


def _as_list_of_texts(value: Any) -> list[str]:
    """The texts of a value that is one text or a list of texts; empty for anything else."""
    given = value if isinstance(value, list) else [value]
    return [one for one in given if isinstance(one, str)]


def _gpu_access_options(service: Mapping[str, Any]) -> Iterator[str]:
    """The options of `docker run` that give a service GPUs by its runtime, devices, privileges, or
    the resources of a swarm.
    """
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
    return bool(_resource_reservations_of_service(service).get("generic_resources"))


def _resource_reservations_of_service(service: Mapping[str, Any]) -> Mapping[str, Any]:
    """The resource reservations of a service, `deploy.resources.reservations`; empty where it has none."""
    part: Any = service
    for key in ("deploy", "resources", "reservations"):
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def _base_image_of_dockerfile(service: Mapping[str, Any], folder: Path) -> str | None:
    """The image that the service's Dockerfile builds on; None if the service builds none or the
    Dockerfile can't be read.
    """
    build = service.get("build")
    if isinstance(build, str):
        build = {"context": build}
    if not isinstance(build, dict):
        return None
    context, name = build.get("context", "."), build.get("dockerfile", "Dockerfile")
    if not isinstance(context, str) or not isinstance(name, str):
        return None
    try:
        text = read_bytes_within_limit(folder / context / name, SETTINGS).decode("utf-8", "replace")
    except (OSError, ValueError, InputLimitError):
        return None
    images = FROM.findall(text)
    return images[-1] if images else None


def _memory_and_gpu_count_options(service: Mapping[str, Any]) -> Iterator[str]:
    """The options of `docker run` for shared memory, tmpfs, and the GPUs that `gpus` or `deploy`
    reserve.
    """
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
    for device in [*(gpus if isinstance(gpus, list) else ()), *_reserved_gpu_devices(service)]:
        if not isinstance(device, dict):
            continue
        named = device.get("device_ids")
        if isinstance(named, list):
            yield f"--gpus=device={','.join(map(str, named))}"
        else:
            yield f"--gpus={device.get('count', 'all')}"


def _reserved_gpu_devices(service: Mapping[str, Any]) -> list[Any]:
    """The GPU entries of `deploy.resources.reservations.devices`."""
    devices = _resource_reservations_of_service(service).get("devices")
    return [
        one
        for one in (devices if isinstance(devices, list) else [])
        if isinstance(one, dict) and "gpu" in str(one.get("capabilities", "gpu"))
    ]


def split_command(text: str) -> list[str]:
    """The words of a command as the shell splits it; split at blanks alone if its quotes do not
    close.
    """
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
