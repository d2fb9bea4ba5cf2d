"""What tests expect where no file asks for a release: the one that is installed beside truetune decides then."""

from __future__ import annotations

from typing import Literal

from packaging.version import Version

from truetune.spec.pins import installed_release

PAST_ALL_CHANGES = {"trl": Version("0.29.1"), "transformers": Version("5.0.0")}


def severity_if_unasked(package: str) -> Literal["error", "warning"]:
    """Of a name that no newer release of a package has."""
    release = installed_release(package)
    return "warning" if release is None or release < PAST_ALL_CHANGES[package] else "error"


UNASKED = severity_if_unasked("trl")
