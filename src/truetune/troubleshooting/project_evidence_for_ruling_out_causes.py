"""What the files, logs and words of a project say, as the tables that rule causes out read it.

Files are lines without their comments: nothing is run or parsed, so that any file counts, whatever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from truetune.checks.explaining.recognise_project_traits_behind_causes import TRAINS
from truetune.logs.run_log import RunLog
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.split_files_into_statements import COMMENT, MAX_LINE_CHARACTERS

MAX_LINES = 20_000
"""Lines that are kept of all files together, which bounds the time of the patterns; what follows is
not read"""
MIN_LOSSES = 10
"""Records that a curve needs to be judged by; it is split into half as many parts, whose means are
compared"""
NUMBER = r"[\"']?\s*[:=,]?\s*[\"']?(\d[\d.]{0,20}(?:e[-+]?\d{1,3})?)"
RECORD = re.compile(r"['\"](?:loss|grad_norm|epoch)['\"]\s*:\s*['\"]?[\d.]")
"""A record of a log"""
SMI_ROW = re.compile(
    r"(?:^|['\"])\|\s+(\d{1,2})\s+(?:NVIDIA|Tesla|GeForce|Quadro|AMD|[A-Z]\d{2,3})\b", re.MULTILINE
)
"""A GPU in the table of nvidia-smi, also in the outputs of a notebook"""
LIBRARY_TRAINER = re.compile(
    r"\b(?:SFT|DPO|KTO|CPO|ORPO|GRPO|RLOO|Reward)?(?:Seq2Seq)?Trainer\("
    r"|llamafactory-cli|\baxolotl\b|\bswift (?:sft|rlhf)"
)


@dataclass(frozen=True)
class Evidence:
    """The lines, logs and words of a project, which a row of the tables asks."""

    question: str
    lines: Sequence[str]
    """Of all files, without comments"""
    logs: Sequence[RunLog]
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The same lines, by file"""
    gpus: frozenset[int] = frozenset()
    """The GPUs that nvidia-smi lists, by their numbers"""

    def line_matches(self, pattern: re.Pattern[str]) -> bool:
        """Does a line of the files match?"""
        return any(pattern.search(line) for line in self.lines)

    def numbers_set_by_lines(self, pattern: re.Pattern[str]) -> list[float]:
        """The numbers that lines set by a pattern; records of a log count as none."""
        return [
            float(number)
            for line in self.lines
            if not RECORD.search(line)
            for match in pattern.finditer(line)
            for number in match.groups()
            if number is not None and _is_number(number)
        ]

    def logged_curves(self, name: str) -> list[np.ndarray]:
        """The curves of a name in all logs, where they have enough records."""
        curves = [log.curve(name).finite().value for log in self.logs]
        return [values for values in curves if values.size >= MIN_LOSSES]

    def user_says(self, pattern: re.Pattern[str]) -> bool:
        """Do the user's words match?"""
        return pattern.search(self.question) is not None

    def lines_of_matching_files(self, pattern: re.Pattern[str]) -> list[Sequence[str]]:
        """The lines of each file of which one matches."""
        return [
            lines for lines in self.files.values() if any(pattern.search(line) for line in lines)
        ]

    @cached_property
    def has_training_line(self) -> bool:
        """Does a line of the files train a model?"""
        return self.line_matches(TRAINS)

    @cached_property
    def trains_only_by_library_trainer(self) -> bool:
        """Does a trainer of a library train, and no loop of the project's own?"""
        return self.line_matches(LIBRARY_TRAINER) and not self.line_matches(
            re.compile(r"\.backward\(")
        )


def _is_number(text: str) -> bool:
    """Is a text a number?"""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_evidence(
    question: str, texts: Iterable[ProjectText], logs: Iterable[RunLog | None]
) -> Evidence:
    """Collect what the files and logs of a project say, for `find_reason_against`."""
    files: dict[str, list[str]] = {}
    gpus: set[int] = set()
    left = MAX_LINES
    for text in texts:
        # Its records are those of a log, and no settings.
        if text.path.name == "trainer_state.json":
            continue
        lines = [
            COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS]) for line in text.lines_unless_prose()
        ][:left]
        files[str(text.path)] = lines
        gpus.update(map(int, SMI_ROW.findall(text.text)))
        left -= len(lines)
    whole = [line for lines in files.values() for line in lines]
    known = [log for log in logs if log is not None]
    return Evidence(question, whole, known, files, frozenset(gpus))


class RuleOutRow(NamedTuple):
    """A row of the tables: words by which it knows causes, and what speaks against these."""

    words: re.Pattern[str]
    """In the text of a cause, and in how it is seen"""
    against: Callable[[Evidence], str]


def make_rule_out_row(words: str, against: Callable[[Evidence], str]) -> RuleOutRow:
    """One row of the tables that rule causes out."""
    return RuleOutRow(re.compile(words, re.IGNORECASE), against)
