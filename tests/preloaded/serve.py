"""`python serve.py SOCKET SOURCES MODULE... -- MODULE...`: import the modules, and run the programs that `ask.py` hands
on, each in a fork. The folder SOURCES, where truetune lies, is on the path only for these imports.

Modules behind `--` are taken out again, with all of their packages: a program imports them itself, which takes no time
(`replayed_imports.py`).

It says "listening" at once: clients wait while it imports. It ends when its standard input does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import threading
import types
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Program:
    """What one client asked for."""

    arguments: list[str]
    """Behind `python`"""
    folder: str
    environment: dict[str, str]
    ignored: list[int]
    """Signals that the client ignores, which its program inherits"""
    streams: list[int]
    """Descriptors of its standard input, output and error"""


class Server:
    """One loop that answers clients and ends of programs."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.end)
        self.running: set[int] = set()
        """Processes of programs"""
        self.ended = False

    def serve(self) -> Program | None:
        """Answer until the end. In the process of a program this returns it; in the server, None."""
        while not self.ended:
            for key, _ in self.selector.select():
                # An event of before may have closed it.
                if key.fileobj in self.selector.get_map():
                    program = key.data()
                    if program is not None:
                        return program
        return None

    def end(self) -> None:
        """End the loop, and what still runs: whoever started the server is gone."""
        self.ended = True
        for child in self.running:
            with suppress(OSError):
                os.killpg(child, signal.SIGKILL)

    def accept(self) -> Program | None:
        """Read a request, and fork."""
        connection, _ = self.listener.accept()
        try:
            program = read_program(connection)
        except (OSError, ValueError):  # a client that was killed meanwhile
            connection.close()
            return None
        child = os.fork()
        if child == 0:
            self.forget(connection)
            return program
        # Also here, so that it is done before a client can be killed.
        with suppress(OSError):
            os.setpgid(child, child)
        for stream in program.streams:
            os.close(stream)
        self.running.add(child)
        pid = os.pidfd_open(child)

        def answer() -> None:
            _, status = os.waitpid(child, 0)
            self.running.discard(child)
            with suppress(OSError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            for file in (pid, connection):
                self.selector.unregister(file)
            os.close(pid)
            connection.close()

        def pass_signals() -> None:
            try:
                numbers = connection.recv(64)
            except OSError:
                numbers = b""
            if numbers:
                for number in numbers:
                    os.kill(child, number)
            else:  # the client was killed
                os.killpg(child, signal.SIGKILL)
                answer()

        self.selector.register(pid, selectors.EVENT_READ, answer)
        self.selector.register(connection, selectors.EVENT_READ, pass_signals)
        return None

    def forget(self, connection: socket.socket) -> None:
        """Close all that is the server's, in the process of a program."""
        connection.close()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()


def read_program(connection: socket.socket) -> Program:
    """Read what a client asks for.

    Args:
        connection: Of the client.

    Returns:
        The request, with descriptors that are this process's own.

    Raises:
        OSError: Where the client is gone.
        ValueError: Where the request ends early.
    """
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    length = int.from_bytes(head, "big")
    text = b""
    while len(text) < length:
        piece = connection.recv(length - len(text))
        if not piece:
            raise ValueError("the request ends early")
        text += piece
    return Program(**json.loads(text.decode("utf-8", "surrogateescape")), streams=streams)


def prepare_process(program: Program) -> list[str]:
    """Make this fork what a new interpreter would be. Returns the arguments without options."""
    with suppress(OSError):
        os.setpgid(0, 0)
    # The server's own lie above 2, so none is overwritten before it is used.
    for number, stream in enumerate(program.streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in program.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.folder)
    unbuffered = program.arguments[0] == "-u"
    _open_streams(unbuffered or bool(program.environment.get("PYTHONUNBUFFERED")))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # else each program would draw the same numbers
    # An entry that the environment names comes first, and a second time from an editable install no more.
    named = list(filter(None, program.environment.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = [*named, *(entry for entry in sys.path if entry not in named)]
    sys.path_importer_cache.clear()
    sys.dont_write_bytecode = bool(program.environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    return program.arguments[unbuffered:]


def _open_streams(unbuffered: bool) -> None:
    """Make `sys.stdin`, `sys.stdout` and `sys.stderr` as a new interpreter does."""
    reader = io.BufferedReader(io.FileIO(0, "r", closefd=False))
    streams: dict[str, Any] = {"stdin": io.TextIOWrapper(reader, "utf-8")}
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        streams[name] = io.TextIOWrapper(
            io.BufferedWriter(raw),
            "utf-8",
            errors=errors,
            line_buffering=name == "stderr" or raw.isatty(),
            write_through=unbuffered,
        )
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run_program(words: list[str]) -> None:
    """Run a script, `-m MODULE` or `-c CODE` as `__main__`. Raises what the program raises."""
    main: Any = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined] # what `python -m` calls
        return
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        code = compile(words[1], "<string>", "exec")
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
        main.__file__ = os.path.abspath(words[0])
        with io.open_code(main.__file__) as file:
            code = compile(file.read(), main.__file__, "exec")
    exec(code, main.__dict__)


def without_frames_of_server(error: BaseException) -> BaseException:
    """Take the frames of this file out of a traceback: a program prints what it prints below `python`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)


def report_error(error: BaseException) -> int:
    """Report an exception that nothing caught, as Python does. Returns the exit code, -n for an end by signal n."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    error = without_frames_of_server(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.excepthook(type(error), error, error.__traceback__)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def end_process(code: int) -> None:
    """End as an interpreter does, without the second that it takes to free all that the server has imported."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as an interpreter does
    atexit._run_exitfuncs()
    # Files that the program left open are written when they are freed.
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def import_what_is_installed(modules: list[str]) -> None:
    """Import these modules, but for those of packages that are not installed.

    Not every environment has each library; a program that needs it imports it, or fails as it should.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise


def listen(path: str, sources: str, modules: list[str], replayed: list[str]) -> Program | None:
    """Import the modules and serve; `replayed` are imported again by each program.

    In the process of a program this returns it; in the server, None at its end.
    """
    replaying = importlib.import_module("replayed_imports")
    del sys.modules["replayed_imports"]
    # That of an interpreter without a script: this one's folder goes. An editable install may have put SOURCES there.
    path_of_interpreter = sys.path[1:]
    sys.path[0] = sources
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    # A Ctrl-C at a terminal goes to all of its processes; programs get it from their clients.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, b"listening\n")
    import_what_is_installed(modules)
    with replaying.record_imports(module.partition(".")[0] for module in replayed) as recorder:
        import_what_is_installed(replayed)
    replaying.ReplayedImports(recorder)
    sys.path[:] = path_of_interpreter
    # Programs share the pages of what is here now, as long as their garbage collection does not visit it.
    gc.collect()
    gc.freeze()
    program = Server(listener).serve()
    if program is None:
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    return program


def main() -> None:
    """Serve; in the process of a program, run it."""
    path, sources, *modules = sys.argv[1:]
    split = modules.index("--")
    program = listen(path, sources, modules[:split], modules[split + 1 :])
    if program is None:
        os._exit(0)
    code = 0
    try:
        run_program(prepare_process(program))
    except BaseException as error:
        code = report_error(error)
    end_process(code)


if __name__ == "__main__":
    main()
