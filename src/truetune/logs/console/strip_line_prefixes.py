"""Strips from a line of console output what the terminal, the launcher and the logger put around
it.

A message is only as good a sign as what carries it: the same words may stand in a row of the training data that a
script prints. So a line keeps the level of the logger that wrote it, and the process that it came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

LogLevel = Literal["", "info", "warning", "error"]
TERMINAL_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\x08"
)
"""Colours, cursor moves, titles and links (ECMA-48), and backspaces"""
PROCESS_PREFIX = re.compile(
    r"\[(?:rank|default|Rank |rank |RANK:)(?P<rank>\d{1,5})\]:? ?"  # torchrun, torch's own, Axolotl
    r"|[\w.-]{1,63}:\d{1,8}:\d{1,8} \[\d{1,3}\] "  # NCCL: host:pid:thread [device]
    r"|\[\d{1,4},(?P<mpi>\d{1,5})\]<std(?:err|out)>: ?"  # mpirun --tag-output
    r"|(?P<srun>\d{1,4}): (?=\S|  )"  # srun --label
    r"|\((?P<ray>[\w.]{1,60} pid=\d{1,9})(?:, ip=[\d.]{7,15})?\) ?"  # Ray
    r"|(?P<host>[a-z][\w.-]{0,40}-\d{1,4})(?::|\s{1,9}\|) (?=\S|  )"  # DeepSpeed's pdsh, docker compose
    r"|\[source (?P<source>[^\]]{1,160})\] ?"  # one of several containers (truetune.logs.strip_container_log_prefixes)
)
TYPED_KEYS = re.compile(r"(?:\^[CZ\\])+")
"""What a terminal echoes of Ctrl-C, Ctrl-Z and Ctrl-\\: it stands in front of the traceback that the key caused"""
TIME_PREFIX = re.compile(
    r"[\[(]?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?,? ?"
    r"|\[\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\] ?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    r"|\d\d-\d\d \d\d:\d\d:\d\d (?=\[?[\w.]{1,80}:\d)"  # vLLM: INFO 03-01 10:00:00 [scheduler.py:7]
    r"|\d{1,7}(?:\.\d{1,3})?s\t?\s?\d{1,9}\t? "  # the page of a Kaggle notebook
    r"|\[\d{1,9}\] "  # viewers of CI that number lines
)
LEVEL_OF_LETTER: dict[str, LogLevel] = {
    "D": "info",
    "I": "info",
    "W": "warning",
    "E": "error",
    "F": "error",
    "C": "error",
}
LEVEL_WORD = r"(?P<level{n}>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
LOGGER_PREFIX = re.compile(
    r"\[(?P<glog>[DIWEFC])\d{3,4} [\d:.]{8,20}(?: \d{1,9})?(?: [^\]\s]{1,120})?\] ?"
    r"|(?P<torch>[DIWEFC])\d{4} [\d:.]{8,20} \d{1,9} [^\]\s]{1,160}\] ?"
    r"|\[(?P<short>[DIWEFC]) [^\]\s]{1,80}:\d{1,6}\] ?"
    rf"|\[{LEVEL_WORD.format(n='')}(?:\|[^\]]{{1,80}})?\](?: [\d:,. -]{{7,29}}\d)?(?: >>)? ?"  # transformers' own form
    rf"|{LEVEL_WORD.format(n='_name')}:(?:[\w.]{{1,100}}:(?: )?| )"  # logging.basicConfig
    rf"|- (?:[\w.]{{1,100}} - )?{LEVEL_WORD.format(n='_dash')} - (?:[\w.]{{1,100}} - )?"
    rf"|{LEVEL_WORD.format(n='_plain')} +(?=\S)"
    r"|\[(?:PID:\d{1,9}|[\w.]{1,80}:\d{1,6}(?::\w{1,60})?|[\w.]{1,40}\.[\w.]{1,60})\] ?"  # [PID:1] [axolotl.train:61]
    r"|[\w.]{1,80}\.py:\d{1,6}\] ?"  # older vLLM: scheduler.py:7]
    r"|[\w.]{1,80}:\d{1,6} >> "  # llamafactory.train.callbacks:143 >>
    r"|(?P<warns>[\w./\\~<>-]{1,300}\.py:\d{1,6}: \w{0,40}Warning: )"  # warnings.warn
)
PREFIXES = (PROCESS_PREFIX, TYPED_KEYS, TIME_PREFIX, LOGGER_PREFIX)
"""What may stand before a message: the launcher's stands outermost"""
MAX_PREFIXES = 8
"""Chosen, not measured: a launcher, Ray, a clock and a logger are four; more are taken for text, so that a line of
brackets costs no time"""


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """One line, apart from its prefixes."""

    number: int
    """1-based line of the file"""
    text: str
    """With its indentation, without prefixes"""
    process: str = ""
    """Which process wrote it, where a prefix says so"""
    level: LogLevel = ""
    """Of the logger that wrote it; empty where none did"""


def strip_codes_and_prefixes(text: str, number: int) -> ConsoleLine:
    """A line without terminal codes and prefixes, with the process and log level that these name."""
    if "\x1b" in text or "\x08" in text:
        text = TERMINAL_CODES.sub("", text)
    text = text.rstrip()
    process = ""
    level: LogLevel = ""
    # Launchers, clocks and loggers wrap one another in any order, so each prefix is taken off until none fits.
    for _ in range(MAX_PREFIXES):
        # Some output has blanks in front of `[rank0]:`. Elsewhere they are the indentation of a traceback's frame.
        unpadded = text.lstrip(" ")
        rest = unpadded if unpadded.startswith("[rank") else text
        match = _next_prefix(rest)
        if match is None:
            break
        if match.re is PROCESS_PREFIX and not process:
            # the outermost prefix is the launcher's, and knows the process best
            process = next((name for name in match.groups() if name is not None), "")
        elif match.re is LOGGER_PREFIX:
            level = _logger_level(match) or level
        text = rest[match.end() :]
    return ConsoleLine(number, text, process, level)


def _next_prefix(text: str) -> re.Match[str] | None:
    """The prefix with which a text begins; None if it begins with its message."""
    for pattern in PREFIXES:
        match = pattern.match(text)
        if match is not None:
            return match
    return None


def _logger_level(match: re.Match[str]) -> LogLevel:
    """The level that a logger's prefix names; empty if it names none."""
    groups = match.groupdict()
    if groups["warns"]:
        return "warning"
    word = next((value for name, value in groups.items() if value and name != "warns"), "")
    return LEVEL_OF_LETTER.get(word[:1], "")
