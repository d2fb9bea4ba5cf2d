"""`python -I -S ask.py SOCKET PYTHON ARGUMENTS...`: run `python ARGUMENTS` in a fork of a preloaded server.

It stands for the program: signals that it gets go to the program, it ends as the program ends, and where it is killed
the server kills the program. What it can't hand on is run by PYTHON itself, in its place.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
KNOWN_VARIABLES = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""Those of an interpreter that the server follows; it reads the others (PYTHONHASHSEED) at its start"""
REAL_INTERPRETER_VARIABLES = (
    "COVERAGE_PROCESS_START",  # coverage starts with the interpreter
    "COVERAGE_PROCESS_CONFIG",
    "TRUETUNE_GUARD",  # a rehearsal confines this process, and would not confine the server's
)


def has_other_variables(path: str) -> bool:
    """Say whether variables that the server's packages read at their import are other ones here."""
    try:
        with open(os.path.join(os.path.dirname(path), "variables.json"), encoding="utf-8") as file:
            server = json.load(file)
    except FileNotFoundError:  # a server without such packages
        return False
    own = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(tuple(server["prefixes"])) and not name.startswith("HF_DATASETS_")
    }
    return bool(own != server["values"])


def is_handed_on(path: str, arguments: list[str]) -> bool:
    """Say whether the server at `path` can run these arguments.

    It runs a script, `-m` and `-c`, and of other options `-u` alone.
    """
    if any(name in os.environ for name in REAL_INTERPRETER_VARIABLES):
        return False
    if has_other_variables(path):
        return False
    # PYTHON_VERSION and the like are no interpreter's: container images set them.
    own = {name for name in os.environ if name.startswith("PYTHON") and "_" not in name}
    if not own <= set(KNOWN_VARIABLES):
        return False
    words = arguments[1:] if arguments[:1] == ["-u"] else arguments
    if not words:
        return False
    if words[0] in ("-m", "-c"):
        return len(words) > 1
    return not words[0].startswith("-") and os.path.isfile(words[0])


def run_by_server(path: str, arguments: list[str]) -> int:
    """Have the server run these arguments, and wait. Returns the exit code, or -n where signal n ended the program."""
    # Before the socket is made: it would take the number of a stream that is closed.
    are_open = [_is_open(number) for number in (0, 1, 2)]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = json.dumps(
        {
            "arguments": arguments,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "ignored": [n for n in FORWARDED if signal.getsignal(n) is signal.SIG_IGN],
        }
    ).encode("utf-8", "surrogateescape")
    nothing = os.open(os.devnull, os.O_RDWR)
    streams = [number if is_open else nothing for number, is_open in enumerate(are_open)]
    socket.send_fds(connection, [len(request).to_bytes(8, "big")], streams)
    connection.sendall(request)

    def forward(number: int, frame: object) -> None:
        connection.send(bytes([number]))

    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    try:
        answer = connection.recv(64)
    except ConnectionError:
        answer = b""
    if not answer:
        print("the server of the preloaded Python ended", file=sys.stderr)
        return 70
    return int(answer)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main() -> None:
    """Run the arguments, and end as they end."""
    path, python, *arguments = sys.argv[1:]
    if not is_handed_on(path, arguments):
        os.execv(python, [python, *arguments])
    code = run_by_server(path, arguments)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
