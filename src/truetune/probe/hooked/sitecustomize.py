"""Python imports this as it starts, in every process below `truetune run` and `truetune rehearse`.

It waits for the packages that the hook is about, at no cost else, and stands on PYTHONPATH in front of any other
sitecustomize, which it imports then. The two modes part here, and share nothing behind it: in a run no failure of ours
may reach the program (`truetune.probe.failure_boundary`), in a rehearsal it must (`truetune.probe.rehearsal_guards`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ORDERS_VARIABLE = "TRUETUNE_ORDERS"
GUARD_VARIABLE = "TRUETUNE_GUARD"
"""Set by the launcher of a rehearsal (`truetune.confinement.launch`), in what it has confined"""
START_SECONDS = 5.0
"""For a start that takes less than a millisecond"""
MAX_TRACEBACK_CHARS = 200_000
"""Characters of a traceback that are kept, the last ones"""
MAX_PRINTED_PIECES = 200
"""Of what is printed that are kept, the last ones: a piece is what one call writes, a line or a part of one"""
MAX_PIECE_CHARS = 2_000
"""Characters of a piece that are kept, the last ones"""
HOOK_FOLDER = os.path.dirname(
    __file__
)  # as it stands on sys.path: `abspath` fails where the working folder is gone


class ImportListener:
    """A finder that finds nothing, but calls `act(*arguments)` when the module of this name has been imported, and is
    gone then. In a run `act` must not raise."""

    def __init__(self, name: str, act: Callable[..., None], *arguments: Any) -> None:
        self.name, self.act, self.arguments = name, act, arguments
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        others = (
            finder
            for finder in sys.meta_path
            if finder is not self and hasattr(finder, "find_spec")
        )
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader = spec.loader

            def exec_module(module: Any) -> None:
                del loader.exec_module
                try:
                    loader.exec_module(module)
                except BaseException as error:
                    error.__traceback__ = (
                        error.__traceback__ and error.__traceback__.tb_next
                    )  # as if not through here
                    raise
                if any(finder is self for finder in sys.meta_path):
                    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
                    self.act(*self.arguments)

            loader.exec_module = exec_module
        return spec


def begin_run(package: str, orders: dict[str, Any]) -> None:
    """A package of the run has been imported: load the hook. Whatever fails is noted for the parent, and forgotten."""
    try:
        load_truetune()
        from truetune.probe.failure_boundary import note_loss, run_contained
    except (
        BaseException
    ) as error:  # so a Ctrl-C in these milliseconds is lost; from here on none is
        note_failed_start(error, orders)
        return
    run_contained(begin_hook, package, orders, on_failure=lambda reason: note_loss(reason, orders))


def begin_hook(package: str, orders: dict[str, Any]) -> None:
    """The hook takes over. A program that lists its modules no longer finds this one."""
    from truetune.probe.trainer_hook import start_hook

    if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:
        del sys.modules["sitecustomize"]
    start_hook(package, orders, ImportListener)


def note_failed_start(error: BaseException, orders: dict[str, Any]) -> None:
    """Leave the reason where the parent finds it (see `truetune.probe.failure_boundary.note_loss`, which is not loaded)."""
    try:
        with open(
            os.path.join(orders["folder"], f"lost-{os.getpid()}"), "w", encoding="utf-8"
        ) as file:
            file.write(f"the hook can't be loaded: {type(error).__name__}: {error}")
    except BaseException:
        pass


def load_truetune() -> None:
    """Make truetune importable from where it is, and no other package from there."""
    import importlib.util

    if "truetune" in sys.modules:
        return
    home = os.path.dirname(os.path.dirname(HOOK_FOLDER))
    spec: Any = importlib.util.spec_from_file_location(
        "truetune", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["truetune"] = module
    spec.loader.exec_module(module)


def keep_last_prints() -> Any:
    """What Python code of this process prints from now on, the last pieces of it.

    The streams stay the program's own, and get all that is written: a pipe in their place would change what a terminal
    is for the program, and hold up what outlives it. What is written past `write` (by C code) is not seen.
    """
    from collections import deque

    pieces: Any = deque(maxlen=MAX_PRINTED_PIECES)

    for stream in filter(None, (sys.stdout, sys.stderr)):

        def write_and_keep(text: str, *, write: Callable[[str], int] = stream.write) -> int:
            # The program calls this: nothing here can fail but what would have failed without it.
            if type(text) is str:
                pieces.append(text[-MAX_PIECE_CHARS:])
            return write(text)

        stream.write = write_and_keep
    return pieces


def note_end(folder: str, process: int, pieces: Any) -> None:
    """Leave the exception that ended this process where the parent finds it, else what it printed last: a program that
    catches its exception and ends with an exit code of its own has said why.

    Python keeps it in `sys.last_value` before it calls `sys.excepthook`, so the program's own hook stays as it is, and
    what is printed too. A forked copy runs the same handler, and is not this process.
    """
    try:
        error = getattr(sys, "last_value", None)
        if os.getpid() != process or isinstance(error, KeyboardInterrupt):
            return
        if error is None:
            write_whole_file(folder, f"printed-{process}", "".join(pieces))
            return
        import traceback

        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))[
            -MAX_TRACEBACK_CHARS:
        ].splitlines()
        rank = os.environ.get("RANK")
        write_whole_file(
            folder,
            f"ended-{process}",
            "\n".join(f"[rank{rank}]: {line}" if rank else line for line in lines),
        )
    except BaseException:
        pass


def write_whole_file(folder: str, name: str, text: str) -> None:
    """Write a file that is whole as soon as it has its name; none where there is nothing to write."""
    if text.strip():
        with open(
            os.path.join(folder, f".{name}"), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
        os.replace(file.name, os.path.join(folder, name))


def wait_for_packages() -> None:
    """Call when a package of the run is imported; `datasets` is of use to canaries alone."""
    import atexit
    import json

    orders = json.loads(os.environ[ORDERS_VARIABLE])
    atexit.register(note_end, orders["folder"], os.getpid(), keep_last_prints())
    for package in ("datasets", "transformers") if orders.get("canary") else ("transformers",):
        ImportListener(package, begin_run, package, orders)


def begin_rehearsal() -> None:
    """Set the guards of a rehearsal up before any of the program runs; where one fails, this process ends."""
    try:
        load_truetune()
        from truetune.probe.rehearsal_guards import begin_guarded

        begin_guarded(os.environ[GUARD_VARIABLE], os.environ[ORDERS_VARIABLE])
    except BaseException as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(
            f"truetune: the rehearsal ends here, nothing was trained: {reason}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(125)


def hand_on() -> None:
    """Import the sitecustomize that would have been imported without this one."""
    sys.path[:] = [entry for entry in sys.path if entry != HOOK_FOLDER]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)


def contain_start() -> None:
    """`wait_for_packages`, without failing or hanging. `truetune.probe.failure_boundary` would take longer to load than this.

    The alarm clock of the process is free, but for one that a program set before it became this one by exec: that is
    put back.
    """
    import _signal  # type: ignore[import-not-found]  # without the enumerations of `signal`, which take longer

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError

    clock = getattr(_signal, "setitimer", None)
    former = _signal.signal(_signal.SIGALRM, ring) if clock else None
    left = clock(_signal.ITIMER_REAL, START_SECONDS) if clock else (0.0, 0.0)
    try:  # noqa: SIM105 - contextlib would have to be loaded
        wait_for_packages()
    except BaseException:  # orders that are none of ours: no hook
        pass
    if clock:
        clock(_signal.ITIMER_REAL, *left)
        _signal.signal(_signal.SIGALRM, former)


if GUARD_VARIABLE in os.environ:
    begin_rehearsal()
elif ORDERS_VARIABLE in os.environ:
    contain_start()
if __name__ == "sitecustomize":
    hand_on()
