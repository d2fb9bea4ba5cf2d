"""The containers of a Kubernetes manifest, each as the `docker run` that would start it.

Servers and trainings on a cluster are started by manifests. Written as commands, the rules for shell scripts judge them
too. GPUs and shared memory are given to a pod in ways that no option of Docker has (a runtime class, a device plugin,
an emptyDir of memory): they are taken as given, so that no rule speaks of what it can't see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.docker_compose_services import Service, option_lines, split_words
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.yaml_reader import parse_yaml

SUFFIXES = (".yaml", ".yml")
HEAD_BYTES = 4096
# Each word is followed by what is not it: no two parts of a pattern match the same characters.
API_VERSION = re.compile(rb"(?m)^apiVersion:")
KIND = re.compile(
    rb"(?m)^kind:[ \t]*[\"']?(?:Pod|Deployment|StatefulSet|DaemonSet|ReplicaSet|Job|CronJob)\b"
)
DOCUMENT_BEGIN = re.compile(r"(?m)^---[ \t]*(?:#.*)?$")
POD_PATHS = (
    ("spec",),
    ("spec", "template", "spec"),
    ("spec", "jobTemplate", "spec", "template", "spec"),
)
"""Where a pod's settings stand: in a Pod, in what makes pods, and in a CronJob"""
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
GIVEN_TO_POD = ("--gpus", "all", "--ipc=host")


def is_pod_manifest(path: Path) -> bool:
    """Does a file describe pods, or what makes them? By its first keys."""
    if path.suffix not in SUFFIXES:
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return False
    return API_VERSION.search(head) is not None and KIND.search(head) is not None


def pod_containers(path: Path) -> list[Service]:
    """The containers of a manifest. Raises DataError where it can't be read."""
    try:
        text = read_bounded(path, SETTINGS).decode("utf-8-sig")
        return [one for part, line in _documents(text) for one in _containers(part, line)]
    except (OSError, UnicodeDecodeError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None


def _documents(text: str) -> Iterator[tuple[str, int]]:
    """The documents of a file, each with the number of lines before it."""
    begin = 0
    for match in [*DOCUMENT_BEGIN.finditer(text), None]:
        end = match.start() if match is not None else len(text)
        yield text[begin:end], text.count("\n", 0, begin)
        begin = match.end() if match is not None else end


def _containers(text: str, lines_before: int) -> Iterator[Service]:
    """The containers of one document, each with the lines of its options in the file."""
    content = parse_yaml(text).value
    for keys in POD_PATHS:
        pod: Any = content
        for key in keys:
            pod = pod.get(key) if isinstance(pod, Mapping) else None
        listed = pod.get("containers") if isinstance(pod, Mapping) else None
        for container in listed if isinstance(listed, list) else ():
            if isinstance(container, Mapping):
                yield _service(container, text, lines_before)


def _service(container: Mapping[str, Any], text: str, lines_before: int) -> Service:
    """A container as a service of a compose file."""
    image = container.get("image")
    begin = next(
        (
            number
            for number, line in enumerate(text.splitlines(), 1)
            if isinstance(image, str) and image in line
        ),
        1,
    )
    lines = {name: line + lines_before for name, line in option_lines(text, 1, ()).items()}
    return Service(begin + lines_before, tuple(_words(container)), lines)


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    """The words of `docker run -e NAME=VALUE IMAGE COMMAND ARGUMENTS`."""
    yield from ("docker", "run", *GIVEN_TO_POD)
    variables = container.get("env")
    for one in variables if isinstance(variables, list) else ():
        if isinstance(one, Mapping) and "value" in one:
            yield from ("-e", f"{one.get('name')}={one['value']}")
    image = container.get("image")
    if isinstance(image, str):
        yield image
    for key in ("command", "args"):
        given = container.get(key)
        words = [str(word) for word in given] if isinstance(given, list) else []
        yield from _words_of_shell(words)


def _words_of_shell(words: list[str]) -> Iterator[str]:
    """The words of a command, and those of the script that a shell is given as one word."""
    is_script = any(word in SHELLS for word in words) or any("\n" in word for word in words)
    for word in words:
        yield from split_words(word) if is_script and " " in word else (word,)
