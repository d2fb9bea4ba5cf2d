"""Python imports this as it starts, in every process below `truetune run`. It waits for two packages, at no cost else.

It stands on PYTHONPATH in front of any other sitecustomize, which it imports then. Whatever fails here is one line on
stderr; the user's program goes on.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ORDERS = "TRUETUNE_ORDERS"
GUARD = "TRUETUNE_GUARD"
"""Set by the launcher of a rehearsal (`truetune.confinement.launch`), in what it has confined"""
HERE = os.path.dirname(os.path.abspath(__file__))


class After:
    """A finder that finds nothing, but calls `act` when the module of this name has been imported."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self.act = name, act
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader = spec.loader

            def exec_module(module: Any) -> None:
                del loader.exec_module
                try:
                    loader.exec_module(module)
                except BaseException as error:
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # as if not through here
                    raise
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    calmly(self.act)

            loader.exec_module = exec_module
        return spec


def calmly(act: Callable[[], Any]) -> None:
    """Call it; a failure is told and forgotten."""
    try:
        act()
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"truetune: the hook failed and is off ({said})", file=sys.stderr)


def begin(name: str) -> None:
    """Load the hook of a run."""
    load_truetune()
    from truetune.probe.hook import begin

    begin(os.environ[ORDERS], name, After, calmly)


def begin_rehearsal() -> None:
    """Set the guards of a rehearsal up before any of the program runs; where one fails, this process ends."""
    try:
        load_truetune()
        from truetune.probe.rehearsing import begin

        begin(os.environ[GUARD], os.environ[ORDERS])
    except BaseException as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"truetune: the rehearsal ends here, nothing was trained: {reason}", file=sys.stderr, flush=True)
        os._exit(125)


def load_truetune() -> None:
    """Make truetune importable from where it is, and no other package from there."""
    import importlib.util

    if "truetune" in sys.modules:
        return
    home = os.path.dirname(os.path.dirname(HERE))
    spec: Any = importlib.util.spec_from_file_location(
        "truetune", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["truetune"] = module
    spec.loader.exec_module(module)


def hand_on() -> None:
    """Import the sitecustomize that would have been imported without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    mine = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, mine)


if GUARD in os.environ:
    begin_rehearsal()
elif ORDERS in os.environ:
    for package in ("datasets", "transformers"):
        After(package, lambda package=package: begin(package))  # type: ignore[misc]
if __name__ == "sitecustomize":
    hand_on()
