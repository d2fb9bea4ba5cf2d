"""Reads the containers of a Kubernetes manifest or of a Helm chart's values, each as the `docker
run` command that would start it.

Servers and trainings on a cluster are started by manifests, and by charts of Helm whose values name an image and its
arguments. Each mapping with an image counts, wherever it stands. Written as commands, the rules for shell scripts judge
them too. GPUs and shared memory are given to a pod in ways that no option of Docker has (a runtime class, a device
plugin, an emptyDir of memory): they are taken as given, so that no rule speaks of what it can't see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.errors import DataError
from truetune.parsing.docker_compose_services_as_commands import (
    Service,
    option_line_numbers,
    split_command,
)
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.parse_yaml_within_limits import YamlError, parse_yaml
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

SUFFIXES = (".yaml", ".yml")
HEAD_BYTES = 4096
"""Bytes of a file in which `apiVersion` and `kind` are looked for, so that other YAML files are not
read whole. Chosen by hand: a licence above them fits as well. Fewer would miss manifests with long
comments"""
# Each word is followed by what is not it: no two parts of a pattern match the same characters.
API_VERSION = re.compile(rb"(?m)^apiVersion:")
KIND = re.compile(
    rb"(?m)^kind:[ \t]*[\"']?(?:Pod|Deployment|StatefulSet|DaemonSet|ReplicaSet|Job|CronJob|LeaderWorkerSet|Rollout"
    rb"|(?:LLM)?InferenceService|(?:Cluster)?ServingRuntime|PyTorchJob|MPIJob|TrainJob|RayJob|RayService|RayCluster)\b"
)
"""Kinds that start containers: those of Kubernetes, KServe, Kubeflow and Ray"""
CHART_VALUES = re.compile(r"values[\w.-]*\.ya?ml")
IMAGE = re.compile(rb"(?m)^[ \t]*image:")
DOCUMENT_BEGIN = re.compile(r"(?m)^---[ \t]*(?:#.*)?$")
ARGUMENTS = ("command", "args", "extraArgs", "extraargs", "additionalArgs", "vllmArgs")
"""Keys of the words behind an image, in their order"""
TEMPLATE_MARK = "{{"
"""Where a chart's template puts a value"""
MAX_DEPTH = 16
"""Mappings and lists around a container; the deepest of the kinds above has nine"""
SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
GIVEN_TO_POD = ("--gpus", "all", "--ipc=host")


def is_manifest_with_containers(path: Path) -> bool:
    """Is it a Kubernetes manifest of pods or of what makes them, by its first keys, or the values
    of a chart, by its name as well?
    """
    if path.suffix not in SUFFIXES:
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return False
    if CHART_VALUES.fullmatch(path.name) is not None:
        return IMAGE.search(head) is not None
    return API_VERSION.search(head) is not None and KIND.search(head) is not None


def containers_as_docker_run(path: Path) -> list[Service]:
    """The containers of a manifest as `docker run` commands; none of a chart's template, which is
    no YAML yet. Raises DataError.
    """
    try:
        text = read_bytes_within_limit(path, SETTINGS).decode("utf-8-sig")
        return [
            one
            for part, line in _yaml_documents(text)
            for one in _containers_of_document(part, line)
        ]
    except YamlError as error:
        if TEMPLATE_MARK in text:
            return []
        raise DataError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError, ValueError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None


def _yaml_documents(text: str) -> Iterator[tuple[str, int]]:
    """The YAML documents of a file, each with the number of lines before it."""
    begin = lines = 0
    for match in [*DOCUMENT_BEGIN.finditer(text), None]:
        end = match.start() if match is not None else len(text)
        yield text[begin:end], lines
        lines += text.count("\n", begin, end)
        begin = match.end() if match is not None else end


def _containers_of_document(text: str, lines_before: int) -> Iterator[Service]:
    """The containers of one YAML document, each with the line numbers of its options in the file."""
    value = parse_yaml(text).value
    kept = frozenset(_volumes_that_outlive_the_pod(value))
    for container in _mappings_with_image(value):
        yield _container_as_docker_run(container, text, lines_before, kept)


def _lasting_volumes_of(pod: Mapping[str, Any]) -> Iterator[str]:
    """The names of the volumes that a description of pods itself lists, but for folders of the pod (`emptyDir`)."""
    volumes = pod.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if isinstance(volume, Mapping) and "emptyDir" not in volume:
            yield str(volume.get("name"))
    # A StatefulSet has claims of its own for each pod.
    claims = pod.get("volumeClaimTemplates")
    for claim in claims if isinstance(claims, list) else ():
        metadata = claim.get("metadata") if isinstance(claim, Mapping) else None
        if isinstance(metadata, Mapping):
            yield str(metadata.get("name"))


def _volumes_that_outlive_the_pod(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    """The names of the volumes of pods that are more than a folder of the pod itself (`emptyDir`)."""
    if isinstance(value, Mapping):
        yield from _lasting_volumes_of(value)
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(inner, str) or not isinstance(inner, Iterable) or not depth:
        return
    for one in inner:
        yield from _volumes_that_outlive_the_pod(one, depth - 1)


def _mappings_with_image(value: Any, depth: int = MAX_DEPTH) -> Iterator[Mapping[str, Any]]:
    """The mappings that name an image, from the outside in."""
    if isinstance(value, Mapping) and _image_of_container(value) is not None:
        yield value
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(inner, str) or not isinstance(inner, Iterable) or not depth:
        return
    for one in inner:
        yield from _mappings_with_image(one, depth - 1)


def _image_of_container(container: Mapping[str, Any]) -> str | None:
    """The image of a container; in a chart's values a mapping has its name and its tag."""
    image = container.get("image")
    if not isinstance(image, Mapping):
        return image if isinstance(image, str) else None
    name, tag = image.get("repository"), image.get("tag")
    if not isinstance(name, str):
        return None
    return f"{name}:{tag}" if isinstance(tag, str | int | float) and tag != "" else name


def _container_as_docker_run(
    container: Mapping[str, Any], text: str, lines_before: int, kept: frozenset[str]
) -> Service:
    """A container as the `docker run` command that would start it, with the line numbers of its
    options.
    """
    image = _image_of_container(container)
    begin = next(
        (
            number
            for number, line in enumerate(text.splitlines(), 1)
            if image is not None and (image in line or image.rpartition(":")[0] in line.split())
        ),
        1,
    )
    lines = {name: line + lines_before for name, line in option_line_numbers(text, 1, ()).items()}
    return Service(begin + lines_before, tuple(_docker_run_words(container, kept)), lines)


def _mounts_and_variables(container: Mapping[str, Any], kept: frozenset[str]) -> Iterator[str]:
    """The words `-v VOLUME:FOLDER` of the volumes that are kept, and `-e NAME=VALUE`."""
    mounts = container.get("volumeMounts")
    for one in mounts if isinstance(mounts, list) else ():
        if isinstance(one, Mapping) and one.get("name") in kept and "mountPath" in one:
            yield from ("-v", f"{one['name']}:{one['mountPath']}")
    variables = container.get("env")
    for one in variables if isinstance(variables, list) else ():
        if isinstance(one, Mapping) and "value" in one:
            yield from ("-e", f"{one.get('name')}={one['value']}")


def _docker_run_words(container: Mapping[str, Any], kept: frozenset[str]) -> Iterator[str]:
    """The words of `docker run -v VOLUME:FOLDER -e NAME=VALUE IMAGE COMMAND ARGUMENTS`."""
    yield from ("docker", "run", *GIVEN_TO_POD)
    yield from _mounts_and_variables(container, kept)
    image = _image_of_container(container)
    if image is not None:
        yield image
    for key in ARGUMENTS:
        given = container.get(key)
        words = [str(word) for word in given] if isinstance(given, list) else []
        yield from _split_shell_script_words(words)


def _split_shell_script_words(words: list[str]) -> Iterator[str]:
    """The words of a command; the script that a shell gets as one word is split into its words too."""
    is_script = any(word in SHELLS for word in words) or any("\n" in word for word in words)
    for word in words:
        yield from split_command(word) if is_script and " " in word else (word,)
