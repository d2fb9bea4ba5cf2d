"""Rewrites the words of a command that starts a container as they would be without the container.

A server in a container is told of folders by their names there (`-v $PWD/out:/models ... --model /models/sft`), and its
image starts the program that the command leaves out. With folders by their names on the host, and with the program, one
set of rules judges servers in and out of containers. The trade-off: a volume that has a name and no folder, or a folder
that only the shell knows, leaves the words as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

CONTAINER_PROGRAMS = frozenset(("docker", "podman", "nerdctl"))
"""Programs that run a command in a container"""
VOLUME_OPTIONS = frozenset(("-v", "--volume"))
OPTIONS_OF_THE_CONTAINER = frozenset(
    (*VOLUME_OPTIONS, "--mount", "-e", "--env", "--env-file", "-w", "--workdir", "--tmpfs")
)
"""Options of `docker run` whose values are no words of the program inside"""
HERE = re.compile(r"(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`|\$\{?SLURM_SUBMIT_DIR\}?)(?=/|$)", re.I)
"""The folder in which the command is given"""
SOURCE_KEYS, TARGET_KEYS = ("source", "src"), ("target", "destination", "dst")
PROGRAM_OF_IMAGE = (
    (re.compile(r"(?:^|/)text-generation-inference(?:[:@]|$)"), "text-generation-launcher"),
    (re.compile(r"(?:^|/)llama\.cpp:server(?:-[\w.-]+)?(?:@|$)"), "llama-server"),
)
"""What an image of a server starts, with the words behind the image as its options"""


def command_words_on_host(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a container's command with host paths instead of the container's, and with the
    program that its image starts.

    A command that starts no container keeps its words.
    """
    if not _starts_container(words):
        return tuple(words)
    # The longest place first: a mount may lie below another.
    mounts = sorted(
        host_folders_and_mount_targets(words), key=lambda one: len(one[1]), reverse=True
    )
    return tuple(_add_program_of_image(list(_replace_container_paths(words, mounts))))


def host_folders_and_mount_targets(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The folders of the host that a container's command mounts, each with its path inside the
    container.
    """
    for option, value in _container_options_with_values(words):
        if option in VOLUME_OPTIONS:
            source, colon, rest = value.partition(":")
            target = rest.partition(":")[0] if colon else ""
        elif option == "--mount":
            source, target = _source_and_target_of_bind_mount(value)
        else:
            continue
        source = HERE.sub(".", source)
        if target.startswith("/") and source.startswith((".", "/", "~")) and "$" not in source:
            yield source, target


def _starts_container(words: Sequence[str]) -> bool:
    """Is it `docker run ...`, with or without `sudo` or a launcher before it?"""
    return any(
        word.rpartition("/")[2] in CONTAINER_PROGRAMS and "run" in words[number + 1 : number + 3]
        for number, word in enumerate(words[:4])
    )


def _container_options_with_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options among the words that set up the container (volumes, variables), each with its
    value.
    """
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option not in OPTIONS_OF_THE_CONTAINER:
            continue
        if equals:
            yield option, value
        elif number + 1 < len(words):
            yield option, words[number + 1]


def _source_and_target_of_bind_mount(value: str) -> tuple[str, str]:
    """Host folder and container path of `type=bind,source=FOLDER,target=PLACE`; empty for another
    kind of mount.
    """
    pairs = dict(one.partition("=")[::2] for one in value.split(","))
    if pairs.get("type", "volume") != "bind":
        return "", ""
    source = next((pairs[key] for key in SOURCE_KEYS if key in pairs), "")
    return source, next((pairs[key] for key in TARGET_KEYS if key in pairs), "")


def _replace_container_paths(
    words: Sequence[str], mounts: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """The words with the paths of the container replaced by those of the host; the container's own
    options stay.
    """
    before = ""
    for word in words:
        is_of_container = {word.partition("=")[0], before} & OPTIONS_OF_THE_CONTAINER
        yield word if is_of_container else _path_on_host(word, mounts)
        before = word


def _path_on_host(word: str, mounts: Sequence[tuple[str, str]]) -> str:
    """A word with the path of the container in it replaced by that of the host: alone, after an
    equals sign (`--model=/m`, `name=/m`), or inside of JSON.
    """
    head, equals, path = word.rpartition("=")
    for source, target in mounts:
        place, folder = target.rstrip("/"), source.rstrip("/")
        # A place at the root of the container would rename every path there is.
        if not place:
            continue
        if path == place or path.startswith(f"{place}/"):
            return f"{head}{equals}{folder}{path.removeprefix(place)}"
        # `--lora-modules '{"name": "a", "path": "/models/a"}'`
        in_json = (f'"{place}"', f'"{place}/')
        if word.startswith(("{", "[")) and any(one in word for one in in_json):
            return word.replace(in_json[0], f'"{folder}"').replace(in_json[1], f'"{folder}/')
    return word


def _add_program_of_image(words: list[str]) -> list[str]:
    """The words with the program that a server's image starts added after the image, if the command
    leaves it out.
    """
    if any(word.partition("=")[0] == "--entrypoint" for word in words):
        return words
    for number, word in enumerate(words):
        for image, program in PROGRAM_OF_IMAGE:
            if image.search(word) and program not in words:
                return [*words[: number + 1], program, *words[number + 1 :]]
    return words
