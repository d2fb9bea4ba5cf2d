"""The parent's side of the template process: starts it, sends requests, and says why it ended where a limit ended it.

Templates come with any downloaded tokenizer. Bounds that are counted inside the process which runs them have been got
around each time, so the kernel holds them, in a process of their own (`template_worker`). One such process serves all
templates of a process of truetune; where a template ends it, the next request starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from truetune.errors import TemplateError
from truetune.render.template_protocol import (
    HEADER,
    MAX_CONVERSATION_SECONDS,
    MAX_MEMORY,
    MAX_REPLY,
    MAX_SECONDS,
    OUT_OF_MEMORY,
    CompileRequest,
    RenderRequest,
)

# Twice what all timers of the process allow together (`template_protocol`).
REPLY_SECONDS = 120.0
"""Wall-clock time for one reply. The timers of the process count processor time and end it long before, unless the
machine gives it next to none."""
WORKER_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; sys.setrecursionlimit(1000); "
    "from truetune.render.template_worker import main; main()"
)


class LimitError(TemplateError):
    """A rendering went past the limits."""


class TemplateProcess:
    """A process that compiles and renders templates. Safe for use by several threads, one request after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._compiled: set[int] = set()
        """Templates that the process knows."""

    def compile(self, template: int, source: str) -> None:
        """Compile a template in the process. Raises TemplateError where the source is not valid Jinja,
        LimitError where that goes past a limit.
        """
        with self._lock:
            self._compile(template, source)

    def render(self, request: RenderRequest, source: str) -> dict[str, Any]:
        """The reply to a request; `source` is that of its template.

        Raises LimitError where a rendering goes past a limit.
        """
        with self._lock:
            self._start_process_if_needed()
            if request.template not in self._compiled:
                self._compile(request.template, source)
            reply = self._ask(request)
            if "unknown_template" in reply:  # it keeps a bounded number
                self._compile(request.template, source)
                reply = self._ask(request)
            return reply

    def _compile(self, template: int, source: str) -> None:
        """Ask the process to compile a template, and remember that it has. Raises TemplateError where it is
        not valid Jinja.
        """
        reply = self._ask(CompileRequest(template, source))
        if "invalid" in reply:
            raise TemplateError(f"the chat template is not valid Jinja: {reply['invalid']}")
        self._compiled.add(template)

    def _ask(self, request: CompileRequest | RenderRequest) -> dict[str, Any]:
        """Send a request and read its reply. Raises LimitError where the process ended or a limit was passed."""
        process = self._start_process_if_needed()
        message = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
        deadline = time.monotonic() + REPLY_SECONDS
        try:
            _write_all(process, HEADER.pack(len(message)) + message)
            (length,) = HEADER.unpack(_read_exactly_before_deadline(process, HEADER.size, deadline))
            # What ran a template is not trusted: a length that it can't have sent honestly would have us allocate it.
            if length > MAX_REPLY:
                raise _ProcessEnded
            reply: dict[str, Any] = json.loads(
                _read_exactly_before_deadline(process, length, deadline).decode(
                    "utf-8", "surrogatepass"
                )
            )
        except (_ProcessEnded, OSError, ValueError):
            raise LimitError(_explain_process_exit_code(self._end_process())) from None
        except BaseException:
            # Ctrl-C between request and reply: the next request must not read this one's reply.
            self._end_process()
            raise
        if "too_large" in reply:
            raise LimitError(
                f"the chat template made {reply['too_large']:,} bytes from one conversation "
                f"(the limit is {MAX_REPLY:,}); is a repeat or a width too large?"
            )
        if "too_slow" in reply:
            raise LimitError(
                f"the chat template took more than {MAX_CONVERSATION_SECONDS:g} s of processor time"
                " to render the turns of one conversation; share it out over several rows"
            )
        return reply

    def _start_process_if_needed(self) -> subprocess.Popen[bytes]:
        """The process, started where there is none."""
        if self._process is None:
            self._process = _start_process()
            self._compiled = set()
        return self._process

    def close(self) -> None:
        """End the process, where it runs."""
        if self._process is not None:
            self._end_process()

    def _end_process(self) -> int:
        """End the process; its return code, negative where a signal ended it before us."""
        process, self._process = self._process, None
        assert process is not None
        # A process that is well ends when its input does.
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        process.kill()
        process.wait()
        return -signal.SIGALRM


class TemplatesInThisProcess(TemplateProcess):
    """Compiles and renders in this process, where no other can be started: in a browser.

    A template has there what a page has, and no more. The page must end its own worker where a template never ends.
    """

    def __init__(self) -> None:
        super().__init__()
        # Imported where it is needed, for it loads Jinja, which is the template process's alone elsewhere.
        from truetune.render.template_worker import Worker

        self._worker = Worker()

    def render(self, request: RenderRequest, source: str) -> dict[str, Any]:
        """The reply to a request; `source` is that of its template."""
        if request.template not in self._worker.templates:
            self.compile(request.template, source)
        return self._ask(request)

    def _ask(self, request: CompileRequest | RenderRequest) -> dict[str, Any]:
        """Answer a request, as JSON would bring the answer over a pipe."""
        reply: dict[str, Any] = json.loads(json.dumps(self._worker.answer(request)))
        return reply


class _ProcessEnded(Exception):
    """The process has closed its pipe, or gave no reply in time."""


def _start_process() -> subprocess.Popen[bytes]:
    # `-I -S`: no site, no sitecustomize, no variables of Python's; the path is ours, so that Jinja is the same one.
    """Start the template process, with pipes to it, in an isolated Python."""
    path = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    command = [sys.executable, "-I", "-S", "-c", WORKER_PROGRAM.format(path=path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    )


def _write_all(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write all of `data`; an unbuffered pipe may take less at a time."""
    assert process.stdin is not None
    view = memoryview(data)
    while view:
        view = view[process.stdin.write(view) :]


def _read_exactly_before_deadline(
    process: subprocess.Popen[bytes], count: int, deadline: float
) -> bytes:
    """Read exactly so many bytes of the process. Raises _ProcessEnded at its end, or when the deadline has
    passed.
    """
    assert process.stdout is not None
    chunks: list[bytes] = []
    while count:
        # `read` alone would wait for ever on a process that hangs in a way that no timer of processor time sees.
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise _ProcessEnded
        chunk = process.stdout.read(min(count, 1 << 20))
        if not chunk:
            raise _ProcessEnded
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _explain_process_exit_code(code: int) -> str:
    """What a user is told of a process with this return code: by which signal a limit was passed."""
    if code in (-signal.SIGPROF, -signal.SIGVTALRM, -signal.SIGALRM):
        return (
            f"the chat template ran for more than {MAX_SECONDS:g} s on one conversation and was"
            " stopped; look for a loop that never ends"
        )
    if code == OUT_OF_MEMORY:
        return (
            f"the chat template took more than {MAX_MEMORY >> 20} MiB of memory and was stopped; "
            "is a repeat or a width too large?"
        )
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return (
        f"the chat template ended the process that renders it ({ended}); is it nested too deeply?"
    )


def shared_process() -> TemplateProcess:
    """The template process that all of this process share. It costs 0.1 s to start, and serves any number
    of templates.
    """
    return _template_process_of_owner(os.getpid())


@cache
def _template_process_of_owner(owner: int) -> TemplateProcess:
    """The template process of its owner, this process: a fork inherits the object, whose pipes and lock
    belong to the parent.
    """
    if sys.platform == "emscripten":
        return TemplatesInThisProcess()
    process = TemplateProcess()
    atexit.register(process.close)
    return process


_numbers: Iterator[int] = itertools.count()


def next_template_number() -> int:
    """A number for a new template."""
    return next(_numbers)
