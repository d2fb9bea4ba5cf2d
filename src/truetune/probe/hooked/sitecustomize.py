"""Python imports this as it starts, in every process below `truetune run`. It waits for transformers, at no cost else.

It stands on PYTHONPATH in front of any other sitecustomize, which it imports then. Whatever fails here is one line on
stderr; the user's program goes on.
"""

import os
import sys

ORDERS = "TRUETUNE_ORDERS"
HERE = os.path.dirname(os.path.abspath(__file__))


class After:
    """A finder that finds nothing, but calls `act` when the module of this name has been imported."""

    def __init__(self, name, act):
        self.name, self.act = name, act
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader, act = spec.loader, self.act

            def exec_module(module):
                del loader.exec_module
                loader.exec_module(module)
                calmly(act)

            loader.exec_module = exec_module
        return spec


def calmly(act):
    """Call it; a failure is told and forgotten."""
    try:
        act()
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"truetune: the hook failed and is off ({said})", file=sys.stderr)


def begin():
    """transformers has been imported: load the hook, with truetune from where it is, and no other package from there."""
    import importlib.util

    if "truetune" not in sys.modules:
        home = os.path.dirname(os.path.dirname(HERE))
        spec = importlib.util.spec_from_file_location(
            "truetune", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules["truetune"] = module
        spec.loader.exec_module(module)
    from truetune.probe.hook import begin

    begin(os.environ[ORDERS], After, calmly)


def hand_on():
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


if ORDERS in os.environ:
    calmly(lambda: After("transformers", begin))
if __name__ == "sitecustomize":
    hand_on()
