"""Parses exceptions in console output: Python's tracebacks, those of rich and of IPython, with
several processes interleaved.

A traceback is a header, frames that are indented more, and a line with the exception, as far left as the header. What
stands behind that line without a break is its message. Chained exceptions are kept in their order: the first is the
root cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from truetune.logs.console.strip_line_prefixes import ConsoleLine

TRACEBACK_HEADER = re.compile(
    r"^(?P<indent>\s*)(?:[+|]\s)?(?:Original )?Traceback \(most recent call last\):?$"
)
NOTEBOOK_HEADER = re.compile(
    r"^(?P<type>[A-Za-z_]\w{2,60}) {3,}Traceback \(most recent call last\)$"
)
BOX_HEADER = re.compile(r"^\s*╭─+ Traceback \(most recent call last\) ─+╮$")
BOX_END = re.compile(r"^\s*╰─+╯$")
FRAME_LINE = re.compile(
    r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<function>.{1,120}))?'
)
BOX_FRAME = re.compile(
    r"^\s*│?\s*(?P<file>\S{1,400}):(?P<line>\d{1,7}) in (?P<function>[\w<>.]{1,120})"
)
CELL_FRAME = re.compile(
    r"^\s*(?P<file>\S{1,400}) in (?P<function>[\w<>. :]{1,120})\(.*\)$|^-+> ?(?P<line>\d{1,6}) "
)
FRAME_OF_FORM = {"python": FRAME_LINE, "box": BOX_FRAME, "notebook": CELL_FRAME}
EXCEPTION_LINE = re.compile(r"^(?P<type>[A-Za-z_][\w.]{1,150})(?:: ?(?P<message>.*))?$")
CHAIN_LINKS = {
    "The above exception was the direct cause of the following exception:": "raised from it",
    "During handling of the above exception, another exception occurred:": (
        "raised while it was handled"
    ),
}
"""What Python prints between two exceptions of a chain"""
IGNORED_HEADERS = (
    "Exception ignored in",
    "--- Logging error ---",
    "Exception ignored on",
    "Error in atexit._run_exitfuncs",
)
"""In front of tracebacks that end nothing"""
END_OF_MESSAGE = re.compile(
    r"^(?:wandb: |Traceback |Epoch |\{'|\s*\d{1,3}%\||srun: |slurmstepd: "
    r"|terminate called|frame #|\"{3}$|Exception ignored in)"
)
"""Lines that are no part of an exception's message any more"""
MAX_FRAMES = 400
"""Chosen, not measured: Python folds the frames of a recursion itself"""
MAX_CODE_CHARACTERS = 300
"""Characters of a frame's source line that are kept"""
ERROR_MARKERS = re.compile(r"^[\s^~]*$")
"""What Python 3.11 draws under the part of a line that failed"""
MAX_MESSAGE_LINES = 80
"""Lines below an exception that may be its message. Chosen, not measured: a state_dict's missing keys are one line"""
MAX_MESSAGE_CHARACTERS = 8_000
"""Characters of a message that are kept: a state_dict of 1,000 keys is no shorter proof than one of 100"""
INSTALLED_FILE = re.compile(
    r"(?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d|[\\/]python\d\.\d+[\\/]|^<frozen"
    r" |[\\/]bin[\\/]\w+$"
)
"""Files of packages and of Python, not of the user"""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""
    """The source line, where it is printed"""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")

    @property
    def is_in_package(self) -> bool:
        """Does the frame belong to an installed package, or to Python itself?"""
        return INSTALLED_FILE.search(self.file) is not None


@dataclass(frozen=True, slots=True)
class PrintedException:
    """One exception that was printed."""

    type: str
    """With its module, as printed: `torch.OutOfMemoryError`"""
    message: str
    frames: tuple[Frame, ...]
    line: int
    """1-based line of the exception in the output"""
    process: str
    is_ignored: bool = False
    """Python printed it and continued (in `__del__`, in a logger)"""

    @property
    def text(self) -> str:
        """The exception as Python prints it: `Type: message`."""
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def last_user_frame(self) -> Frame | None:
        """The last frame in a file of the user's; the last of all if there is none."""
        own = [frame for frame in self.frames if not frame.is_in_package]
        frames = own or list(self.frames)
        return frames[-1] if frames else None


@dataclass(frozen=True, slots=True)
class ExceptionChain:
    """Exceptions of which each was raised from the one before, or while it was handled."""

    raised: tuple[PrintedException, ...]

    @property
    def root(self) -> PrintedException:
        """The first exception of the chain: what went wrong."""
        return self.raised[0]

    @property
    def last(self) -> PrintedException:
        """The last exception of the chain: what reached the top of the program."""
        return self.raised[-1]


@dataclass(slots=True)
class _OpenTraceback:
    """A traceback whose exception has not come yet, or whose message may have more lines."""

    indent: int
    form: str
    process: str
    is_ignored: bool
    named: str = ""
    frames: list[Frame] = field(default_factory=list)
    type: str = ""
    message: list[str] = field(default_factory=list)
    size: int = 0
    line: int = 0


def _add_source_line(open_: _OpenTraceback, text: str) -> None:
    """Keeps the first line below a frame as its source."""
    last = open_.frames[-1]
    if (
        not last.code
        and len(text) - len(text.lstrip()) > open_.indent
        and not ERROR_MARKERS.match(text)
    ):
        open_.frames[-1] = replace(last, code=text.strip()[:MAX_CODE_CHARACTERS])


def _add_matched_frame(open_: _OpenTraceback, match: re.Match[str]) -> None:
    """Add a frame, or add to the last one the line number that IPython prints below it (`---> 12`)."""
    groups = match.groupdict()
    if groups["file"] and len(open_.frames) < MAX_FRAMES:
        open_.frames.append(
            Frame(groups["file"], int(groups["line"] or 0), groups["function"] or "")
        )
    elif groups["line"] and open_.frames:
        last = open_.frames.pop()
        open_.frames.append(Frame(last.file, int(groups["line"]), last.function))


def _is_inside_frames(open_: _OpenTraceback, text: str) -> bool:
    """Is a line that is no frame still above the exception: source code, a border of rich, a blank line?"""
    stripped = text.strip()
    if open_.form == "box":
        return stripped.startswith(("│", "╭")) or BOX_END.match(text) is not None or not stripped
    if open_.form == "notebook":
        # IPython prints source at the left margin; only the name of its header tells the exception from code
        return not text.startswith(f"{open_.named}:") and stripped != open_.named
    return not stripped or len(text) - len(text.lstrip()) > open_.indent


def frames_above_line(lines: Sequence[ConsoleLine], number: int) -> tuple[Frame, ...]:
    """The frames that end just above a line: indented lines without a gap."""
    above = [line.text for line in lines if line.number < number]
    indented: list[str] = []
    while above and above[-1][:1].isspace():
        indented.append(above.pop())
    matches = (FRAME_LINE.match(text) for text in reversed(indented))
    return tuple(
        Frame(match["file"], int(match["line"]), match["function"] or "")
        for match in matches
        if match
    )


class TracebackReader:
    """Takes the lines of one process, and gives the exceptions that they hold."""

    def __init__(self) -> None:
        self._open: _OpenTraceback | None = None
        self._chain: list[PrintedException] = []
        self._is_linked = False
        self._ignore_next = False

    @property
    def is_inside(self) -> bool:
        """Is a traceback open?"""
        return self._open is not None

    def add_line(self, line: ConsoleLine) -> Iterator[ExceptionChain]:
        """Read one line, and yield the exception chains that it ends."""
        opened = self._open_at_header(line)
        if opened is not None:
            if self._open is not None:
                self._close_traceback()
            # Without one of Python's linking sentences, this is another exception and not the next of the chain.
            if self._chain and not self._is_linked:
                yield self._take_chain_and_begin_empty()
            self._is_linked = False
            self._open = opened
            return
        text = line.text.strip()
        if text in CHAIN_LINKS:
            self._close_traceback()
            self._is_linked = bool(self._chain)
            return
        if self._open is not None:
            self._add_to_open_traceback(line)
        if self._open is None and text:
            self._ignore_next = text.startswith(IGNORED_HEADERS)
            if self._chain and not self._is_linked:
                yield self._take_chain_and_begin_empty()

    def end(self) -> Iterator[ExceptionChain]:
        """Yield the chain that is open when the output ends."""
        self._close_traceback()
        if self._chain:
            yield self._take_chain_and_begin_empty()

    def _open_at_header(self, line: ConsoleLine) -> _OpenTraceback | None:
        """The traceback that this line is the header of; None where it is no header."""
        ignored, text = self._ignore_next, line.text
        header = TRACEBACK_HEADER.match(text)
        if header is not None:
            # exception groups and launchers indent whole tracebacks: frames are measured from the header
            return _OpenTraceback(len(header["indent"]), "python", line.process, ignored)
        cell = NOTEBOOK_HEADER.match(text.strip())
        if cell is not None:
            return _OpenTraceback(0, "notebook", line.process, ignored, named=cell["type"])
        if BOX_HEADER.match(text) is not None:
            return _OpenTraceback(0, "box", line.process, ignored)
        return None

    def _add_to_open_traceback(self, line: ConsoleLine) -> None:
        """Add a line to the traceback that is open."""
        open_ = self._open
        assert open_ is not None
        if open_.type:
            self._continue_message(open_, line)
        elif not self._add_if_frame(open_, line):
            self._add_exception_line(open_, line)

    def _add_if_frame(self, open_: _OpenTraceback, line: ConsoleLine) -> bool:
        """Add the line if it is a part of the frames, and say whether it was."""
        text = line.text
        pattern = FRAME_OF_FORM[open_.form]
        match = pattern.match(text) or FRAME_LINE.match(text)
        if match is not None:
            _add_matched_frame(open_, match)
            return True
        if open_.form == "python" and open_.frames:
            _add_source_line(open_, text)
        return _is_inside_frames(open_, text)

    def _add_exception_line(self, open_: _OpenTraceback, line: ConsoleLine) -> None:
        """Read the line after the frames: the exception, or something else that was printed in
        between.
        """
        match = EXCEPTION_LINE.match(line.text.strip().removeprefix("| "))
        if match is None:
            # Another thread may print in between. Without a frame, it was no traceback but a text about one.
            self._open = open_ if open_.frames else None
            return
        open_.type, open_.line = match["type"], line.number
        open_.message.append(match["message"] or "")

    def _continue_message(self, open_: _OpenTraceback, line: ConsoleLine) -> None:
        """Add a line to the exception's message, which continues until a blank line, a logger or
        other output.
        """
        text = line.text
        if (
            not text.strip()
            or line.level
            or END_OF_MESSAGE.match(text)
            or line.number - open_.line > MAX_MESSAGE_LINES
        ):
            self._close_traceback()
            return
        if open_.size < MAX_MESSAGE_CHARACTERS:
            open_.message.append(text)
            open_.size += len(text)

    def _close_traceback(self) -> None:
        """Put the open traceback into the chain; one that never came to its exception is dropped."""
        open_, self._open = self._open, None
        self._ignore_next = False
        if open_ is None or not open_.type:
            return
        message = "\n".join(open_.message).strip()[:MAX_MESSAGE_CHARACTERS]
        frames = tuple(open_.frames)
        self._chain.append(
            PrintedException(
                open_.type, message, frames, open_.line, open_.process, open_.is_ignored
            )
        )

    def _take_chain_and_begin_empty(self) -> ExceptionChain:
        """Return the chain as it is, and begin an empty one."""
        chain, self._chain = ExceptionChain(tuple(self._chain)), []
        self._is_linked = False
        return chain
