"""The boundary between our code and the program of the user that it runs in: `run_contained`.

Every way into our code goes through it. Whatever that code raises, or takes too long for, ends there; the program
continues as if there had been no hook, and the parent is told why there is no audit. Three things are not held back:

- what the user's own signal handlers raise. A Ctrl-C, or a SIGTERM handler that raises SystemExit, ends the program as
  it would have without us, even if it arrives in the middle of our work;
- what the program itself raises in the call that an entry point wraps: that is not our code;
- a hang inside C code that neither returns nor lets signals through (or, off the main thread, any blocking call).
  Nothing in a process can end that, so all that is long runs in a forked copy, which can be killed
  (`truetune.probe.forked_process`). Only this module and the entry points that tests/probe/injection lists
  (`ImportListener.find_spec`, its `exec_module`, `NewTrainer.__call__`, `on_train_begin`, the wrapped methods of data
  sets) are not themselves contained; they are short for that reason.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders

# For a step that takes milliseconds: loading the hook, noting a data set, finding the trainer.
STEP_SECONDS = 20.0
# For writing down that the audit is lost.
NOTE_SECONDS = 5.0
# Work that swallowed the first ring of the clock hears it again after so long; meanwhile it may put things back.
RING_AGAIN_SECONDS = 5.0
# The clock's signal: it is ignored where nobody handles it, so that a late one does no harm.
CLOCK_SIGNAL = getattr(signal, "SIGURG", None)
# Characters of a reason that are told.
MAX_REASON = 300


class Abandoned(BaseException):
    """Raised into work that took too long; no Exception, lest it be caught by the way."""


class Lost(Exception):
    """There is no audit; the message is the whole reason, for the user to read."""


def run_contained(
    work: Callable[..., Any],
    *arguments: Any,
    on_failure: Callable[[str], Any],
    seconds: float = STEP_SECONDS,
) -> Any:
    """The result of `work(*arguments)`; None where it failed, or was abandoned after so many seconds.

    `on_failure` is given the reason, and is itself contained. Raises only what the user's own signal handlers raised.
    """
    result, failure = _attempt_call(work, arguments, seconds)
    if failure is not None:
        _attempt_call(on_failure, (_failure_reason(failure, seconds),), NOTE_SECONDS)
    return result


def note_reason_of_missing_audit(reason: str, orders: HookOrders) -> None:
    """Leave the reason why there is no audit where the parent finds it."""
    path = Path(orders["folder"], f"lost-{os.getpid()}")
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(reason, encoding="utf-8", errors="replace")
    unfinished.replace(path)


def describe_error(error: BaseException) -> str:
    """The error in one line, whatever its own text does."""
    if isinstance(error, Abandoned):
        return "the hook took too long and was abandoned"
    try:
        text = " ".join(str(error).split())
        name = "" if isinstance(error, Lost) else type(error).__name__
        return ": ".join(filter(None, (name, text)))[:MAX_REASON]
    except BaseException:
        return "an error that can't be put into words"


def _attempt_call(
    work: Callable[..., Any], arguments: tuple[Any, ...], seconds: float
) -> tuple[Any, BaseException | None]:
    """(result, None) or (None, what went wrong). Raises what the user's own signal handlers raised."""
    result: Any = None
    failure: BaseException | None = None
    process = os.getpid()
    handlers = _Handlers()
    try:
        clock = _Alarm(seconds)
        try:
            result = _call_under_clock(work, arguments)
        except BaseException as error:
            failure = error
        finally:
            clock.stop()
    except BaseException as error:
        failure = error
    finally:
        if os.getpid() != process:  # a forked copy never continues as the user's program
            os._exit(1)
        handlers.put_back()
    if handlers.raised is not None:
        raise handlers.raised.with_traceback(None)
    return (None, failure) if failure is not None else (result, None)


def _call_under_clock(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call the work while the clock may ring: it rings only below this frame, so never in the user's code
    or in `_attempt_call`.
    """
    return work(*arguments)


def _failure_reason(failure: BaseException, seconds: float) -> str:
    """Why the work failed, for the user: that it took too long, or its error in one line."""
    if isinstance(failure, Abandoned):
        return f"the hook took more than {seconds:g} s and was abandoned"
    return describe_error(failure)


class _Handlers:
    """The user's own signal handlers, each wrapped so that what it raises is known to be theirs."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._wrapped: list[tuple[int, Any, Any]] = []
        if threading.current_thread() is not threading.main_thread():
            return  # handlers run in the main thread alone
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                wrapper = self._remember_raised_error(handler)
                signal.signal(number, wrapper)
                self._wrapped.append((number, handler, wrapper))

    def _remember_raised_error(self, handler: Any) -> Any:
        """The handler, with what it raises kept in `raised` before it continues to the program."""

        def forward(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                self.raised = error
                raise

        return forward

    def put_back(self) -> None:
        """Put the user's own signal handlers back; a handler that was changed meanwhile stays."""
        for number, handler, wrapper in self._wrapped:
            if signal.getsignal(number) is wrapper:
                signal.signal(number, handler)


class _Alarm:
    """Raises Abandoned in this thread's work, `seconds` from now, and again until it stops.

    In the main thread by a signal, which also wakes calls that wait; elsewhere by an asynchronous exception.
    """

    def __init__(self, seconds: float) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._rang = False
        self._handler: Any = None
        main = threading.current_thread() is threading.main_thread()
        if (
            main
            and CLOCK_SIGNAL is not None
            and signal.getsignal(CLOCK_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN)
        ):
            self._handler = signal.signal(CLOCK_SIGNAL, _raise_timeout)
        self._by_signal = self._handler is not None
        self._timer = threading.Thread(
            target=self._ring_repeatedly_after, args=(seconds,), name="truetune-clock", daemon=True
        )
        self._timer.start()

    def _ring_repeatedly_after(self, seconds: float) -> None:
        """The clock's own thread: ring after so many seconds, and again until stopped."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(
                signal.SIG_BLOCK, signal.valid_signals()
            )  # the user's signals are not for us
        while not self._stopped.wait(seconds):
            with self._lock:
                if self._stopped.is_set():
                    return
                self._rang = True
                if self._by_signal and CLOCK_SIGNAL is not None:
                    signal.pthread_kill(self._thread, CLOCK_SIGNAL)
                else:
                    _raise_in_thread(self._thread, Abandoned)
            seconds = RING_AGAIN_SECONDS

    def stop(self) -> None:
        """Ring no more; an asynchronous exception that has not arrived yet is taken back."""
        while True:
            try:
                with self._lock:
                    self._stopped.set()
                    if self._rang and not self._by_signal:
                        _raise_in_thread(self._thread, None)
                break
            except Abandoned:  # it arrived here
                continue
        if (
            self._by_signal
            and CLOCK_SIGNAL is not None
            and signal.getsignal(CLOCK_SIGNAL) is _raise_timeout
        ):
            signal.signal(CLOCK_SIGNAL, self._handler)
        self._timer.join(1.0)


def _raise_timeout(number: int, frame: FrameType | None) -> None:
    """The handler of the clock's signal: raises Abandoned in our work, and nothing in code of the user's that a late
    signal meets."""
    while frame is not None:
        if frame.f_code is _call_under_clock.__code__:
            raise Abandoned
        frame = frame.f_back


def _raise_in_thread(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception of this kind in another thread, asynchronously; None takes back one that has not
    arrived.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(kind) if kind is not None else None
    )
