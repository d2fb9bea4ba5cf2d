"""Starts the process that runs a user's reward function, and calls the function in it.

The process is confined as a rehearsal is: it writes nowhere but in a temporary folder, and reaches no other machine
(`rehearsal.confined_command`). Each call has a time limit. The worker ends itself at the limit and says where it was;
where it does not, it is killed a little later. A new process is then started by the next call.

The trade-off: a function that keeps something between calls loses it when its process is ended.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from truetune.confinement.confined_launcher import REFUSED_EXIT_CODE, remove_overlay_folder
from truetune.errors import TruetuneError, UsageError
from truetune.generation.reward_trial import Access, AccessKind
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.rehearsal.confined_command import confine_command

WORKER = Path(__file__).with_name("reward_worker.py")
# Chosen, not measured: torch and transformers together import in 10 to 20 s from a cold disk.
LOAD_SECONDS = 120.0
"""Seconds that loading the function may take"""
# Chosen, not measured: the worker's own watchdog needs milliseconds; a second more is a busy machine.
GRACE_SECONDS = 3.0
"""Seconds after its limit at which a process that did not end itself is killed"""
MAX_SHOWN_ERROR = 400
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


class RewardFunctionError(TruetuneError, RuntimeError):
    """The function can't be loaded, or its process can't be kept alive."""


class RewardProcessEnded(RewardFunctionError):
    """The process ended within a call, by itself or by a signal."""


class RewardCallHung(Exception):
    """A call was ended at its time limit; `line` is the user's line that was executed."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True, slots=True)
class RewardTarget:
    """Which function: a file or module, and a name in it."""

    source: str
    """`rewards.py` or `package.rewards`"""
    function: str

    @property
    def folder(self) -> str:
        """The folder of the file; the working folder of a module."""
        return str(Path(self.source).resolve().parent) if self.is_file else os.getcwd()

    @property
    def is_file(self) -> bool:
        """Is the function in a file that is named by its path?"""
        return self.source.endswith(".py")

    def __str__(self) -> str:
        return f"{self.source}:{self.function}"


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """What is known of a function before it is called."""

    parameters: tuple[str, ...]
    """Those with a name of their own"""
    optional: tuple[str, ...]
    """Those of them that have a default"""
    takes_any: bool
    """Has it **kwargs?"""
    texts: tuple[str, ...]
    """The strings that its code names"""
    notes: tuple[str, ...]
    makes_functions: bool = False
    """Does it define a function that takes completions: one that it gives?"""
    is_of_verl: bool = False
    """Is it called as verl calls its functions, and not as TRL does?"""
    unused: tuple[str, ...] = ()
    """Arguments that its code never reads"""
    is_of_openrlhf: bool = False
    """Is it called as OpenRLHF calls its functions: with `queries`, `prompts` and `labels`?"""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call gave."""

    scores: tuple[float | None, ...] = ()
    """One for each completion; NaN and infinities included; empty where there is a problem"""
    problem: str = ""
    """What was returned instead"""
    raised: str = ""
    """The exception, `KeyError: 'content'`"""
    line: str = ""
    """The user's line that raised it"""
    swallowed: tuple[str, ...] = ()


def parse_target(text: str) -> RewardTarget:
    """The function that `FILE.py:FUNCTION` or `MODULE:FUNCTION` names.

    Raises:
        UsageError: it names none, or the file is missing.
    """
    source, colon, function = text.rpartition(":")
    if not colon or not source or not function or function.endswith(".py"):
        raise UsageError(
            f"{text}: expected FILE.py:FUNCTION or MODULE:FUNCTION, as in rewards.py:correct"
        )
    if source.endswith((".ipynb", ".txt", ".json")):
        raise UsageError(f"{source}: expected a Python file (.py) or the name of a module")
    if source.endswith(".py") and not Path(source).is_file():
        raise UsageError(f"{source}: there is no such file")
    return RewardTarget(source, function)


def _result_of_reply(reply: Mapping[str, Any]) -> CallResult:
    """What a reply to a call says. Raises KeyError, TypeError or ValueError where it is none."""
    if "raised" in reply:
        return CallResult(raised=str(reply["raised"]), line=str(reply["line"]))
    return CallResult(
        tuple(None if score is None else float(score) for score in reply["scores"]),
        problem=str(reply["problem"]),
        swallowed=tuple(map(str, reply["swallowed"])),
    )


class RewardProcess:
    """A process with a reward function in it. Used as a context manager; it is started when it is first needed."""

    def __init__(
        self, target: RewardTarget, seconds: float, *, python_only: bool = False, hash_seed: int = 0
    ) -> None:
        """Prepare the process; nothing is started.

        Args:
            target: the function.
            seconds: that a call may take.
            python_only: make do without confinement by the system, where it has none.
            hash_seed: of Python's hashes, which give the order of sets of texts.
        """
        self.target = target
        self.seconds = seconds
        self.python_only = python_only
        self.hash_seed = hash_seed
        self.process: subprocess.Popen[bytes] | None = None
        self.work = Path()
        self.accesses: list[Access] = []
        self.calls = self.completions = 0
        self._buffer = b""

    def __enter__(self) -> RewardProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> LoadedFunction:
        """Load the function in a new process.

        Raises:
            UsageError: there is no such function.
            RewardFunctionError: its file can't be imported.
        """
        self.close()
        self._start()
        request = {
            "source": str(Path(self.target.source).resolve()) if self.target.is_file else self.target.source,
            "name": self.target.function,
            "folder": self.target.folder,
            "seconds": LOAD_SECONDS,
        }  # fmt: skip
        try:
            reply = self._exchange(request, LOAD_SECONDS)
        except RewardCallHung as hung:
            at = f" ({hung.line})" if hung.line else ""
            raise RewardFunctionError(
                f"{self.target.source}: importing it did not end within {LOAD_SECONDS:.0f} s{at};"
                " move the function into a file of its own"
            ) from None
        if "missing" in reply:
            raise UsageError(str(reply["missing"]).replace(f"{self.target.folder}{os.sep}", ""))
        if "failed" in reply:
            at = f" ({reply['line']})" if reply["line"] else ""
            raise RewardFunctionError(
                f"{self.target.source}: importing it raises {reply['failed']}{at}"
            )
        return LoadedFunction(
            tuple(reply["parameters"]),
            tuple(reply["optional"]),
            bool(reply["takes_any"]),
            tuple(reply["texts"]),
            tuple(reply["notes"]),
            bool(reply["makes_functions"]),
            bool(reply["is_of_verl"]),
            tuple(reply["unused"]),
            bool(reply["is_of_openrlhf"]),
        )

    def call(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Sequence[Any]],
        *,
        seconds: float,
        traced: bool = False,
    ) -> CallResult:
        """Score completions as TRL asks for it.

        Args:
            completions: texts, or lists of messages.
            prompts: as many, in the same form.
            completion_ids: as many lists of token ids.
            columns: further columns of the rows, as long each.
            seconds: that the call may take.
            traced: note exceptions that the function catches itself; it is slow.

        Raises:
            RewardCallHung: it took too long; the process is gone.
            RewardProcessEnded: the process ended otherwise.
        """
        if self.process is None:
            self.load()
        arguments = {
            **columns,
            "prompts": list(prompts),
            "completions": list(completions),
            "completion_ids": [list(ids) for ids in completion_ids],
        }
        self.calls += 1
        self.completions += len(completions)
        reply = self._exchange(
            {"arguments": arguments, "seconds": seconds, "traced": traced}, seconds
        )
        try:
            return _result_of_reply(reply)
        except (KeyError, TypeError, ValueError):
            # The function's code runs in that process, and may write to any pipe of it.
            raise RewardFunctionError(f"{self.target}: its process wrote no reply") from None

    def close(self) -> None:
        """End the process, and keep what it noted of accesses."""
        if self.process is None:
            return
        self._kill()
        self.accesses += [one for one in self._read_accesses() if one not in self.accesses]
        self.process = None
        remove_overlay_folder(str(self.work))

    def note_accesses(self) -> tuple[Access, ...]:
        """What the function did outside of itself, in all processes so far."""
        noted = [*self.accesses, *(self._read_accesses() if self.process is not None else ())]
        return tuple(dict.fromkeys(noted))

    def _start(self) -> None:
        """Start the process. Raises UsageError where the system has no way to confine it."""
        self.work = Path(tempfile.mkdtemp(prefix="truetune-reward-"))
        command = [sys.executable, "-u", str(WORKER), str(self.work)]
        self._buffer = b""
        with open(self.work / "errors", "wb") as errors:
            self.process = subprocess.Popen(
                confine_command(command, self.work, python_only=self.python_only),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONHASHSEED": str(self.hash_seed)},
                # Its own group: where it has to be killed, what it started is killed as well.
                start_new_session=True,
            )

    def _exchange(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its reply. Raises RewardCallHung, RewardFunctionError."""
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
            self.process.stdin.flush()
        line = self._read_line(seconds + GRACE_SECONDS)
        if line is None:
            self._end_without_reply()
        assert line is not None
        try:
            reply = parse_json(line, REPLY, exact_integers=True)
        except ValueError as error:
            raise RewardFunctionError(
                f"{self.target}: its process wrote no reply: {error}"
            ) from None
        if not isinstance(reply, dict):
            raise RewardFunctionError(f"{self.target}: its process wrote no reply")
        return reply

    def _read_line(self, seconds: float) -> bytes | None:
        """The next line of the process; None where it ends or takes too long."""
        assert self.process is not None
        assert self.process.stdout is not None
        descriptor, until = self.process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            part = os.read(descriptor, 1 << 16)
            self._buffer += part
            if not part or len(self._buffer) > REPLY.max_bytes:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _end_without_reply(self) -> None:
        """Say why there is no reply. Raises RewardCallHung or RewardFunctionError."""
        assert self.process is not None
        self._kill()
        code = self.process.returncode
        hang = (self.work / "hang").read_text() if (self.work / "hang").exists() else ""
        errors = (self.work / "errors").read_text(errors="replace").strip()
        line = self._line_of_hang(hang)
        self.close()
        if hang:
            raise RewardCallHung(line)
        if code == REFUSED_EXIT_CODE:
            raise UsageError(f"nothing was started: {errors[-MAX_SHOWN_ERROR:]}")
        last = errors.rpartition("\n")[2][-MAX_SHOWN_ERROR:]
        why = f": {last}" if last else ""
        raise RewardProcessEnded(f"the process ended with code {code}{why}")

    def _line_of_hang(self, traceback: str) -> str:
        """The innermost line of the user's files in a traceback of faulthandler; empty where there is none."""
        for frame in _FRAME.finditer(traceback):
            path = frame["file"]
            if path.startswith((self.target.folder, os.getcwd())) and path != str(WORKER):
                if "site-packages" not in path:
                    return f"{Path(path).name}:{frame['line']}"
        return ""

    def _kill(self) -> None:
        """End the process and what it started, and wait for it."""
        assert self.process is not None
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            # Without requests it ends by itself.
            self.process.wait(0.5)
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _read_accesses(self) -> list[Access]:
        """The accesses that the process has noted so far."""
        path = self.work / "accesses.jsonl"
        if not path.exists():
            return []
        accesses = []
        for line in path.read_bytes().splitlines()[:1000]:
            # The last line of a process that was killed may be half a one, and the user's code may write others.
            with suppress(KeyError, TypeError, ValueError):
                note = parse_json(line, REPLY)
                if note["kind"] not in get_args(AccessKind):
                    continue
                accesses.append(Access(note["kind"], str(note["subject"]), str(note["line"])))
        return accesses
