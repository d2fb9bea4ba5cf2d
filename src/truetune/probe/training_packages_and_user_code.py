"""Tells which packages train, and which code of a process is the user's own.

Code is the user's own unless its package is one of those below, its file lies in a folder of installed packages, or it
is Python's. The trade-off: a package of the user's own that pip has copied into such a folder counts as a library.
"""

from __future__ import annotations

import sysconfig
from pathlib import PurePath

RECORDED_PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "unsloth",
    "axolotl",
    "llamafactory",
)
"""Those whose releases a record names"""
LIBRARIES = frozenset({*RECORDED_PACKAGES, "swift", "truetune"})
"""Packages that are never the user's own code, also where they run from a clone"""
# What pip installs is in the one, what Debian's packages install in the other.
INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages"})


def is_library_module(module: str) -> bool:
    """Is a module, by its name, of one of the packages that train?"""
    return module.partition(".")[0] in LIBRARIES


def is_own_code(module: str, file: str) -> bool:
    """Is code of this module and source file the user's own: no training package, not installed, not Python's?

    A package of the user's own counts as theirs where it is run from its folder (also if pip links to that).
    """
    parts = PurePath(file).parts
    if is_library_module(module) or not INSTALLED_FOLDERS.isdisjoint(parts):
        return False
    standard = sysconfig.get_paths().get("stdlib")
    return not (standard and file.startswith(standard))
