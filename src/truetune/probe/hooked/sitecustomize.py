"""Starts the hook of `truetune run` or `truetune rehearse` in every Python process below them; Python imports this
module as it starts.

It stands on PYTHONPATH in front of any other sitecustomize, which it imports when it is done
(`import_next_sitecustomize`). It waits for the packages that the hook is about: `ImportListener` is called when one of
them has been imported. The two modes part here, and share nothing behind it: in a run no failure of ours may reach the
program (`truetune.probe.contain_own_failures_in_user_program`), in a rehearsal it must
(`truetune.probe.rehearsal_hook`).

Trade-off: this runs in every Python process below the launcher, also in a shell script's `python -c`. So it imports as
little as it can, writes its own small versions of what truetune has elsewhere, and is written without dataclasses,
contextlib and typing, whose import would take longer than all that it does.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`, which is not loaded; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from truetune.probe.orders_from_launcher_to_hook import HookOrders

# Set by the launcher, as JSON: what the hook is to do.
ORDERS_VARIABLE = "TRUETUNE_ORDERS"
# Set by the launcher of a rehearsal (`truetune.confinement.confined_launcher`), in what it has confined.
GUARD_VARIABLE = "TRUETUNE_GUARD"
# For a start that takes less than a millisecond: only a dead network drive takes longer, and then the run continues.
START_SECONDS = 5.0
# Chosen, not measured: a report shows the end of a traceback and of the output. Of both the last part is kept, and so
# much that a chain of exceptions of a distributed run fits.
MAX_TRACEBACK_CHARS = 200_000
# A piece is what one call of `write` is given, a line or a part of one. Together at most 400 kB, whatever is printed.
MAX_PRINTED_PIECES = 200
MAX_PIECE_CHARS = 2_000
# As it stands on sys.path: `abspath` fails where the working folder is gone.
HOOK_FOLDER = os.path.dirname(__file__)


class ImportListener:
    """A finder that finds nothing, but calls `act(*arguments)` once the module of this name has been imported.

    A function that is called after an import has no public interface in Python. `sys.meta_path` is asked at each
    import, before the module runs, so the loader that another finder returns is given an `exec_module` of ours, which
    runs the module and then acts. Without it, transformers would have to be imported here, in every process; and a
    wrapper around `builtins.__import__` would slow down each import of the program and stand in all its tracebacks
    (the entry points in tests/probe/injection hold both).
    """

    def __init__(self, name: str, act: Callable[..., None], *arguments: Any) -> None:
        """Wait for the module of this name. In a run `act` must not raise: it is called in the program's import."""
        self.name, self.act, self.arguments = name, act, arguments
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders have, whose loader calls us; None for other modules."""
        if name != self.name:
            return None
        spec: Any = None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        # Modules of C have loaders without it; the packages that are waited for have none such.
        if hasattr(getattr(spec, "loader", None), "exec_module"):
            loader = spec.loader

            def exec_module(module: Any) -> None:
                # The instance's attribute goes first, so that a reload, or a look at the loader, finds its own method.
                del loader.exec_module
                try:
                    loader.exec_module(module)
                except BaseException as error:
                    # This frame is taken out, so that the program's traceback is that without us.
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    raise
                # By identity, as other finders may have an `__eq__` that raises. One that is gone from the list has
                # acted already, or was removed by the program.
                before = len(sys.meta_path)
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
                if len(sys.meta_path) < before:
                    self.act(*self.arguments)

            loader.exec_module = exec_module
        return spec


def load_hook_after_package_import(package: str, orders: HookOrders) -> None:
    """A package of the run has been imported: load the hook. Whatever fails is noted for the parent, and forgotten."""
    try:
        load_truetune()
        from truetune.probe.contain_own_failures_in_user_program import (
            note_reason_of_missing_audit,
            run_contained,
        )
    except BaseException as error:  # so a Ctrl-C in these milliseconds is lost; later none is
        note_failed_start(error, orders)
        return
    run_contained(
        begin_hook,
        package,
        orders,
        on_failure=lambda reason: note_reason_of_missing_audit(reason, orders),
    )


def begin_hook(package: str, orders: HookOrders) -> None:
    """Begin the hook, which takes over. A program that lists its modules no longer finds this one."""
    from truetune.probe.trainer_hook import wait_for_trainer_after_package_import

    if getattr(sys.modules.get("sitecustomize"), "__file__", None) == __file__:
        del sys.modules["sitecustomize"]
    wait_for_trainer_after_package_import(package, orders, ImportListener)


def note_failed_start(error: BaseException, orders: HookOrders) -> None:
    """Leave the reason where the parent finds it, as `note_reason_of_missing_audit` does.

    The module of that function is not loaded here.
    """
    try:
        with open(
            os.path.join(orders["folder"], f"lost-{os.getpid()}"), "w", encoding="utf-8"
        ) as file:
            file.write(f"the hook can't be loaded: {type(error).__name__}: {error}")
    except BaseException:
        pass


def load_truetune() -> None:
    """Make truetune importable from where it is, and no other package from there.

    The program may run in an environment without truetune. Its folder on `sys.path` would make all of the launcher's
    packages importable, too: another torch or transformers than the run's.
    """
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
        # `write` as a default: a closure would hold the last stream of the loop only.
        def write_and_keep(text: str, *, write: Callable[[str], int] = stream.write) -> int:
            # The program calls this: nothing here can fail but what would have failed without it.
            if type(text) is str:
                pieces.append(text[-MAX_PIECE_CHARS:])
            return write(text)

        stream.write = write_and_keep
    return pieces


def note_end(folder: str, process: int, pieces: Any) -> None:
    """Note the end of this process for the parent: the exception that ended it, else what it printed last.
    A program that catches its exception and ends with an exit code of its own has said why in what it
    printed.

    Python keeps it in `sys.last_value` before it calls `sys.excepthook`, so the program's own hook stays as it is, and
    what is printed too. A forked copy runs the same handler, and is not this process.
    """
    try:
        error = getattr(sys, "last_value", None)
        if os.getpid() != process or isinstance(error, KeyboardInterrupt):
            return
        if error is None:
            write_file_atomically(folder, f"printed-{process}", "".join(pieces))
            return
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        lines = text[-MAX_TRACEBACK_CHARS:].splitlines()
        rank = os.environ.get("RANK")
        if rank:  # as torchrun marks the lines of its processes
            lines = [f"[rank{rank}]: {line}" for line in lines]
        write_file_atomically(folder, f"ended-{process}", "\n".join(lines))
    except BaseException:
        pass


def write_file_atomically(folder: str, name: str, text: str) -> None:
    """Write a file that is whole as soon as it has its name; none where there is nothing to write.

    The parent reads the folder while processes still end: a file that is half written would be taken for the reason.
    """
    if text.strip():
        with open(
            os.path.join(folder, f".{name}"), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
        os.replace(file.name, os.path.join(folder, name))


def begin_run_when_packages_imported() -> None:
    """Call when a package of the run is imported; `datasets` is of use to canaries alone."""
    import atexit
    import json

    orders = json.loads(os.environ[ORDERS_VARIABLE])
    atexit.register(note_end, orders["folder"], os.getpid(), keep_last_prints())
    for package in ("datasets", "transformers") if orders.get("canary") else ("transformers",):
        ImportListener(package, load_hook_after_package_import, package, orders)


def install_rehearsal_guards() -> None:
    """Set the guards of a rehearsal up before any of the program runs; where one fails, this process ends."""
    try:
        load_truetune()
        from truetune.probe.rehearsal_hook import set_up_all_rehearsal_guards

        set_up_all_rehearsal_guards(os.environ[GUARD_VARIABLE], os.environ[ORDERS_VARIABLE])
    except BaseException as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(
            f"truetune: the rehearsal ends here, nothing was trained: {reason}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(125)


def import_next_sitecustomize() -> None:
    """Hand on to the next sitecustomize: import the one that would have been imported without this one.

    A cluster's own sitecustomize (of a debugger, a profiler, a site's paths) must run as it does without us, so this
    folder and this module's name give way to it.
    """
    sys.path[:] = [entry for entry in sys.path if entry != HOOK_FOLDER]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, own)


def start_waiting_for_packages_without_failing() -> None:
    """Start to wait for the packages of a run, without failing or hanging.

    `truetune.probe.contain_own_failures_in_user_program` would take longer to load than this. The alarm clock of the
    process is free, but for one that a program set before it became this one by exec: that is put back.
    """
    import _signal  # type: ignore[import-not-found]  # without the enumerations of `signal`, which take longer

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError

    clock = getattr(_signal, "setitimer", None)
    former = _signal.signal(_signal.SIGALRM, ring) if clock else None
    left = clock(_signal.ITIMER_REAL, START_SECONDS) if clock else (0.0, 0.0)
    try:  # noqa: SIM105 - contextlib would have to be loaded
        begin_run_when_packages_imported()
    except BaseException:  # orders that are none of ours: no hook
        pass
    if clock:
        clock(_signal.ITIMER_REAL, *left)
        _signal.signal(_signal.SIGALRM, former)


if GUARD_VARIABLE in os.environ:
    install_rehearsal_guards()
elif ORDERS_VARIABLE in os.environ:
    start_waiting_for_packages_without_failing()
if __name__ == "sitecustomize":
    import_next_sitecustomize()
