"""`python -m bench.candidates`: is the true cause among the first candidates of `truetune troubleshoot`, with no rule
asked?

Every start of `bench.starts` has the user's words and the truth. The place of the truth among the candidates is taken
as if no rule had found it: what a user sees of a fault that no rule knows yet. Starts are halved by a hash of their
names; what is tuned is tuned on one half, and both are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.starts.start import Start, starts
from tests.parts.shelf import Missing
from truetune.checks.explaining.guides import GUIDES, Cause
from truetune.checks.rule_catalogue import all_rules
from truetune.troubleshooting.find_traits_shown_by_project_lines import read_facts_of_project
from truetune.troubleshooting.project_words import read_project_texts, word_stems_of_texts
from truetune.troubleshooting.rank_causes import choose_guides, rank_causes

QUOTED = re.compile(r'["“”](.{12,}?)["“”]', re.S)
SHOWN = 5
NOT_LISTED = 999
TRUTHS = Path(__file__).parent / "candidate_truths.json"
UNSPECIFIC = frozenset(("fault-named-in-the-output", "run-ended-in-an-exception"))
"""Rules that stand for many causes: the message that they found says which"""
ASKING_COMMANDS = ("troubleshoot", "explain")


@dataclass(frozen=True, slots=True)
class Trial:
    """One start whose truth is a cause of a guide."""

    start: Start
    words: str
    """What the user says of it"""
    rules: frozenset[str]
    """Those that name the truth; `candidate_truths.json` has them by a run of all checks"""
    phrases: tuple[str, ...]
    """Words of a cause that is the truth"""

    @property
    def half(self) -> str:
        """`tuned` or `held out`, by the name alone."""
        digest = hashlib.sha256(self.start.name.encode()).digest()
        return "held out" if digest[0] % 2 else "tuned"


class Place(NamedTuple):
    """Where the truth of a start stands among the candidates."""

    number: int
    """From 1 on; `NOT_LISTED` where it is none of them"""
    cause: str
    lines: tuple[str, ...]
    """What a reader is sent to"""


def list_trials() -> Iterator[Trial]:
    """The starts whose truth is known by rules or words, with what the user says of it, or the symptom alone."""
    truths: dict[str, list[str]] = json.loads(TRUTHS.read_text(encoding="utf-8"))
    names = {rule.name() for rule in all_rules()}
    for start in starts():
        rules = frozenset((*truths.get(start.name, ()), *names.intersection(start.leads_to)))
        phrases = tuple(part.removeprefix("1. ") for part in start.leads_to if len(part) > 20)
        if rules - UNSPECIFIC:
            yield Trial(start, _words_of(start), rules - UNSPECIFIC, phrases)


def _is_truth(cause: Cause, trial: Trial) -> bool:
    """Is this cause what is wrong?"""
    by_words = any(part in cause.text for part in trial.phrases)
    return by_words or not trial.rules.isdisjoint(cause.rules)


def _words_of(start: Start) -> str:
    """What a user types or says: the words of a command, those that are quoted, or else none."""
    for command in start.commands:
        parts = shlex.split(command.replace("{", "").replace("}", ""))
        if len(parts) > 2 and parts[1] in ASKING_COMMANDS and " " in parts[2]:
            return parts[2]
    return " ".join(QUOTED.findall(start.has))


def start_words(start: Start) -> str:
    """The symptom alone, of a user who says no more: the first way in which its guide has it said."""
    return next(guide.asked[0] for guide in GUIDES if guide.name == start.symptom)


def place_of(trial: Trial) -> Place:
    """The place of the true cause among the candidates."""
    with tempfile.TemporaryDirectory(prefix="candidate-") as scratch:
        trial.start.lay_out(Path(scratch))
        words = trial.words or start_words(trial.start)
        texts = read_project_texts([scratch])
        facts = read_facts_of_project(words, texts)
        candidates = rank_causes(choose_guides(words), words, word_stems_of_texts(texts), facts)
        for number, candidate in enumerate(candidates, 1):
            if _is_truth(candidate.cause, trial):
                lines = tuple(
                    f"{Path(line.place).relative_to(scratch)}: {line.text.strip()}"
                    for line in candidate.lines
                )
                return Place(number, candidate.cause.text, lines)
    return Place(NOT_LISTED, "", ())


def _print_place(place: Place, trial: Trial) -> None:
    """One start: where its truth stands, and the lines that a reader is sent to."""
    print(f"{place.number:>4} {trial.start.name}: {trial.words[:110]!r} {sorted(trial.rules)}")
    print(f"       {place.cause[:100]}")
    for line in place.lines:
        print(f"       look at {line[:140]}")


def main() -> None:
    """Print the places of the true causes, and how many are among the first five of each half."""
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print each start of the tuned half")
    parser.add_argument("--symptom", help="only the starts of one symptom, e.g. out-of-memory")
    arguments = parser.parse_args()
    led: dict[tuple[str, str], list[Place]] = {}
    for trial in list_trials():
        if arguments.symptom not in (None, trial.start.symptom):
            continue
        try:
            place = place_of(trial)
        except Missing:
            continue
        said = "words" if trial.words else "symptom alone"
        led.setdefault((trial.half, said), []).append(place)
        if arguments.list and trial.half == "tuned":
            _print_place(place, trial)
    for (half, said), places in sorted(led.items()):
        among = [place for place in places if place.number <= SHOWN]
        pointed = sum(bool(place.lines) for place in among)
        print(
            f"{half}, {said}: {len(among)} of {len(places)} among the first {SHOWN},"
            f" {pointed} of them with a line to look at"
        )


if __name__ == "__main__":
    main()
