"""Builds the page that shows in a browser what a chat teaches: `python docs/browser_check FOLDER`.

The folder is static. It holds this folder's page, truetune as it is here, the packages that it imports, and two
packages of JavaScript: Pyodide, which is Python, and the library `tokenizers` as WebAssembly. Third-party code comes
from package registries at build time (pip and npm), pinned; none is kept here. Serve the folder by any web
server, such as `python -m http.server -d FOLDER`: browsers start no worker from a file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
PYTHON_PACKAGES = (
    "annotated-types", "click", "jinja2", "markupsafe", "packaging", "pydantic", "PyYAML", "rich",
    "typing-extensions", "typing-inspection",
)  # fmt: skip
"""What truetune imports to show a row, at the versions that are installed here. Parts of them that are compiled for
this machine are left out; all but pydantic do without."""
# Of the Python that Pyodide has, as its lock file names it.
WASM_PYTHON, WASM_PLATFORM = "3.14", "pyemscripten_2026_0_wasm32"
COMPILED_SUFFIXES = (".so", ".pyc", ".pyd", ".dylib")


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A package of npm at one version."""

    name: str
    version: str
    sha512: str
    """Of its archive, in base 64, as the registry's lock files write it"""


PYODIDE = NpmPackage(
    "pyodide",
    "314.0.7",
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
)
WEB_TOKENIZERS = NpmPackage(
    "@mlc-ai/web-tokenizers",
    "0.1.6",
    "A5GSqUSnMjDkPoXBFFtbbW3F/qygCixuwbi7/EUMzcpgwFOAhD9vSZZBchK3IpC0c6TKlcDqAYDYp8vpb8/4vA==",
)
PYODIDE_FILES = (
    "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip


class BuildError(Exception):
    """A package can't be had, or is not the one that is pinned."""


def build_page(target: Path) -> None:
    """Write the static folder.

    Args:
        target: the folder; it is made, and files of an earlier build are replaced.

    Raises:
        BuildError: npm or pip is missing, or a package can't be had or differs from its pin.
    """
    target.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "page").iterdir():
        shutil.copyfile(file, target / file.name)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with _open_npm_package(PYODIDE, work) as archive:
            (target / "pyodide").mkdir(exist_ok=True)
            for file_name in PYODIDE_FILES:
                _extract(archive, file_name, target / "pyodide" / file_name)
        with _open_npm_package(WEB_TOKENIZERS, work) as archive:
            _extract(archive, "lib/index.js", target / "web-tokenizers.js")
        _write_python_archive(target / "python.zip", _download_compiled_pydantic(work))


def _open_npm_package(package: NpmPackage, work: Path) -> tarfile.TarFile:
    """Fetch a package by npm, and open its archive. Raises BuildError."""
    if shutil.which("npm") is None:
        raise BuildError("npm is not installed; it fetches Pyodide")
    wanted = f"{package.name}@{package.version}"
    _run(["npm", "pack", "--silent", wanted, "--pack-destination", str(work)])
    # npm names the archive of `@scope/name` scope-name-version.tgz.
    stem = package.name.removeprefix("@").replace("/", "-")
    path = work / f"{stem}-{package.version}.tgz"
    digest = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise BuildError(f"{wanted} is not the pinned one: its archive has the SHA-512 {digest}")
    return tarfile.open(path)


def _extract(archive: tarfile.TarFile, name: str, target: Path) -> None:
    """Write one file of a package of npm."""
    content = archive.extractfile(f"package/{name}")
    assert content is not None
    target.write_bytes(content.read())


def _download_compiled_pydantic(work: Path) -> Path:
    """Fetch pydantic-core for Pyodide, at the version that is installed here: its wheel. Raises BuildError."""
    version = importlib.metadata.version("pydantic-core")
    _run([
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--platform", WASM_PLATFORM, "--python-version", WASM_PYTHON, "--implementation", "cp",
        "--abi", f"cp{WASM_PYTHON.replace('.', '')}", "-d", str(work), f"pydantic-core=={version}",
    ])  # fmt: skip
    return next(work.glob("pydantic_core-*.whl"))


def _run(command: list[str]) -> None:
    """Run a command. Raises BuildError with what it printed where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


def _write_python_archive(target: Path, compiled_pydantic: Path) -> None:
    """Write all that Python imports in the page into one archive."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for root, path in _python_files():
            archive.write(path, path.relative_to(root))
        with zipfile.ZipFile(compiled_pydantic) as wheel:
            for name in wheel.namelist():
                archive.writestr(name, wheel.read(name))


def _python_files() -> Iterator[tuple[Path, Path]]:
    """(the folder that is imported from, a file in it) of the stand-ins, of truetune and of its packages."""
    for root, folder in ((HERE / "stand_ins", HERE / "stand_ins"), (SOURCE, SOURCE / "truetune")):
        for path in sorted(folder.rglob("*.py")):
            yield root, path
    for name in PYTHON_PACKAGES:
        distribution = importlib.metadata.distribution(name)
        root = Path(str(distribution.locate_file("")))
        for file in distribution.files or ():
            path = root / file
            inside = ".." not in file.parts and path.suffix not in COMPILED_SUFFIXES
            if inside and path.is_file():
                yield root, path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name the folder to write: python docs/browser_check FOLDER")
    try:
        build_page(Path(sys.argv[1]))
    except BuildError as problem:
        sys.exit(str(problem))
