"""Since which release a class of arguments has had the default that it has today:

    pip download --no-deps trl==0.12.2 transformers==4.45.2 ... -d FOLDER
    python -m tests.settings.steady_defaults FOLDER > src/truetune/settings/stacks/steady_defaults.json

Read from the sources in the wheels; nothing of them is run. A release counts for those between it and the next one that
was read: a default that went away and came back between two of them is not seen.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from truetune.settings.stacks.known_keys import load_known_keys

PARTS = {"trl": "trl/", "transformers": "transformers/training_args"}
"""Package -> where its classes of arguments lie"""
NOTHING = object()


class Source:
    """The classes of one release, with the defaults of their fields as they are written."""

    def __init__(self, wheel: Path, begin: str) -> None:
        self.bases: dict[str, list[str]] = {}
        self.own: dict[str, dict[str, Any]] = {}
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                is_part = name.startswith(begin) and name.endswith(".py")
                if is_part and ("config" in name or "training_args" in name):
                    self._read(ast.parse(archive.read(name)))

    def _read(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.bases[node.name] = [
                    base.id for base in node.bases if isinstance(base, ast.Name)
                ]
                self.own.setdefault(node.name, {}).update(_defaults_of(node))

    def default(self, name: str, key: str) -> Any:
        """The default of a key in a class or one above it; NOTHING where it has none that is plain."""
        if key in self.own.get(name, {}):
            return self.own[name][key]
        for base in self.bases.get(name, ()):
            found = self.default(base, key) if base != name else NOTHING
            if found is not NOTHING:
                return found
        return NOTHING


def _defaults_of(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """(field, default) of a dataclass."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, _plain(line.value)


def _plain(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):
        value = next((one.value for one in value.keywords if one.arg == "default"), None)
    try:
        return NOTHING if value is None else ast.literal_eval(value)
    except ValueError:
        return NOTHING


def steady_since(sources: Mapping[Version, Source], name: str, key: str, today: Any) -> str | None:
    """The first release from which on all that were read have today's default; None where the last one has not."""
    since = None
    for release in sorted(sources, reverse=True):
        then = sources[release].default(name, key)
        if then is NOTHING or then != today or type(then) is not type(today):
            break
        since = release
    return None if since is None else str(since)


def inherited_since(
    sources: Mapping[Version, Source], name: str, key: str, today: Any
) -> str | None:
    """The first release after all that gave an inherited key a default of their own; None where none of them did.

    `RewardConfig.remove_unused_columns` was False up to TRL 0.23, and is what TrainingArguments has since then.
    """
    since = None
    is_own = False
    for release in sorted(sources):
        then = sources[release].default(name, key)
        is_overridden = then is not NOTHING and then != today
        if is_own and not is_overridden:
            since = str(release)
        is_own = is_overridden
    return since


def main() -> None:
    """Print the table of the wheels in a folder."""
    folder = Path(sys.argv[1])
    table: dict[str, dict[str, dict[str, str]]] = {}
    for package, begin in PARTS.items():
        wheels = {
            Version(file.name.split("-")[1]): Source(file, begin)
            for file in folder.glob(f"{package}-*.whl")
        }
        for name, keys in load_known_keys(package).classes.items():
            found = {
                key: since
                for key, today in keys.items()
                if (since := steady_since(wheels, name, key, today)) is not None
            }
            if package == "trl":
                base = load_known_keys("transformers").classes["TrainingArguments"]
                found |= {
                    key: since
                    for key, today in base.items()
                    if key not in keys
                    and (since := inherited_since(wheels, name, key, today)) is not None
                }
            if found:
                table.setdefault(package, {})[name] = found
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    # A class a line: git shows what changed.
    print(text.replace('},"', '},\n"').replace(':{"', ':{\n"'))


if __name__ == "__main__":
    main()
