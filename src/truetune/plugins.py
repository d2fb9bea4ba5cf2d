"""Loads plug-ins: rules, row formats, config readers and backends that other packages bring.

A package names them as entry points; there is nothing to configure:

    [project.entry-points."truetune.rules"]
    house-style = "nano_truetune.house_style"

What each group holds is said where it is read (`checks.rule_catalogue`, `spec.row_formats`, `spec.stacks.registry`,
`generation.backends.open_backend`). The packages are those of the user's own environment, which Python imports anyway;
what cannot be loaded is one clear error, for a rule that silently does not run would make "no findings" untrue. The
environment variable TRUETUNE_PLUGINS=0 leaves all of them out.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from truetune.errors import UsageError

Group = Literal[
    "truetune.rules", "truetune.formats", "truetune.config_readers", "truetune.backends"
]
SWITCH = "TRUETUNE_PLUGINS"
"""Environment variable that leaves plug-ins out where it is 0"""


@cache
def load_plugins(group: Group) -> Mapping[str, Any]:
    """Load the objects that installed packages bring, by the names of their entry points.

    Args:
        group: What they are.

    Raises:
        UsageError: one can't be loaded; the message names its package, and how to continue without it.
    """
    if os.environ.get(SWITCH) == "0":
        return {}
    loaded: dict[str, Any] = {}
    for point in sorted(entry_points(group=group)):
        package = point.dist.name if point.dist is not None else point.value
        without = f"correct it, uninstall {package}, or set {SWITCH}=0 to continue without plug-ins"
        if point.name in loaded:
            raise UsageError(
                f"the plug-in {point.name} of {package}: another package brings one of this name"
                f" for {group}; {without}"
            )
        try:
            loaded[point.name] = _load_all_modules(point.load())
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UsageError(
                f"the plug-in {point.name} of {package} can't be loaded ({reason}); {without}"
            ) from error
    return loaded


def _load_all_modules(brought: Any) -> Any:
    """What an entry point names; of a package, its modules are imported too, so that a broken one is told here."""
    for info in pkgutil.iter_modules(getattr(brought, "__path__", ())):
        importlib.import_module(f"{brought.__name__}.{info.name}")
    return brought
