"""Strips the prefix that a container's log puts in front of nearly every line of a file.

`docker compose logs`, `kubectl logs --prefix`, journald and their like print a name, a clock or both before each line.
Readers of records, bars and tracebacks know the beginning of a line by what a program prints there. So a prefix is
taken off before they read, and only where nearly all lines of the file's beginning have one of the same form: a line
of a program may look like it now and then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json

CLOCK_OF_SYSLOG = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
CLOCK_OF_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
CLOCK_OF_CONTAINER = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
SHARED_FORMS = tuple(
    re.compile(form)
    for form in (
        r"(?:\d\d:\d\d:\d\d )?(?P<source>[A-Za-z][\w.@/-]{0,80}) {0,60}\| ?",  # compose, honcho
        r"\[(?P<source>(?:pod|job|deployment)/[\w./-]{1,160})\] ?",  # kubectl logs --prefix
        rf"{CLOCK_OF_ISO} (?:stdout|stderr) [FP] ",  # containerd
        # journald and syslog: a clock, the host, the program and its number
        rf"(?:{CLOCK_OF_SYSLOG}|{CLOCK_OF_ISO}) [\w.-]{{1,80}} (?P<source>[\w./@:-]{{1,80}}(?:\[\d{{1,9}}\])?): ?",
        r"(?P<source>[a-z0-9][a-z0-9.-]{0,80}-[a-z0-9]{1,12}) [a-z][a-z0-9-]{0,40} (?:› |> |\| )",  # stern
        # kubectl logs --timestamps, ts; a clock of the program itself has no `T`, and says how long a step took
        rf"(?:\[(?:{CLOCK_OF_SYSLOG}|{CLOCK_OF_ISO})\]|{CLOCK_OF_SYSLOG}|{CLOCK_OF_CONTAINER})(?: |$)",
        r"\[(?:rank|default)(?P<source>\d{1,5})\]:? ?",  # torchrun, its own and with --tee
    )
)
"""The outermost form is looked for first, and again behind it: a pod's name and a clock are two"""
SUPERVISOR_HEADER = re.compile(rf"{CLOCK_OF_ISO} DEBG '[^']{{1,80}}' std(?:out|err) output:$")
"""supervisord with loglevel=debug: a line of its own before what a program printed"""
DOCKER_RECORD = '{"log":"'
"""How lines of Docker's own files (`*-json.log`) begin"""
SAMPLE_PIECES = 400
"""Pieces at the beginning by which a form is known. Chosen, not measured"""
MIN_LINES, MIN_SHARE = 3, 0.9
"""From which a prefix is shared. Chosen, not measured: a bar's redrawings have none behind a carriage return"""
MAX_SOURCES = 64
"""Names in front of lines: more are texts of a program (`name | value`), not containers"""
MAX_FORMS = 3
"""Prefixes in front of one another that are taken off. Chosen by hand: the name of a container, its
time stamp and that of a log collector are three. More could take off a text that a program itself
prints in each line; fewer would leave a prefix"""


def strip_shared_prefixes(pieces: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The pieces of a file without the prefix that a container's log put in front of them. If
    several containers print into one file, each line keeps the name of its own (`[source
    trainer-1]`), so that their tracebacks are not woven together.

    Where several containers print into one file, each line keeps the name of its own (`[source trainer-1]`), so that
    their tracebacks are not woven together.
    """
    pieces = iter(pieces)
    sample = list(islice(pieces, SAMPLE_PIECES))
    all_pieces = chain(sample, pieces)
    if _are_nearly_all_true(
        text.startswith(DOCKER_RECORD) for text, _ in _first_pieces_of_lines(sample)
    ):
        yield from ((_text_in_docker_record(text), number) for text, number in all_pieces)
        return
    forms, is_of_several = _shared_prefixes_and_has_several_sources(
        [text for text, _ in _first_pieces_of_lines(sample)]
    )
    for text, number in all_pieces:
        if SUPERVISOR_HEADER.match(text) is None:
            yield _strip_prefixes(text, forms, is_of_several=is_of_several), number


def _first_pieces_of_lines(sample: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The first piece of each line that is not blank: what follows a carriage return has no prefix."""
    first: dict[int, str] = {}
    for text, number in sample:
        if text.strip():
            first.setdefault(number, text)
    return [(text, number) for number, text in first.items()]


def _are_nearly_all_true(fits: Iterable[bool]) -> bool:
    """Are nearly all of these true?"""
    answers = list(fits)
    return len(answers) >= MIN_LINES and sum(answers) >= MIN_SHARE * len(answers)


def _shared_prefixes_and_has_several_sources(
    lines: list[str],
) -> tuple[tuple[re.Pattern[str], ...], bool]:
    """The forms of prefix that nearly all lines begin with, the outermost first; and whether they
    name several sources.
    """
    forms: list[re.Pattern[str]] = []
    is_of_several = False
    for _ in range(MAX_FORMS):
        form = next((form for form in SHARED_FORMS if _is_prefix_of_nearly_all(form, lines)), None)
        if form is None:
            break
        forms.append(form)
        is_of_several = is_of_several or len(_source_names(form, lines)) > 1
        rests = [line[match.end() :] for line in lines if (match := form.match(line))]
        lines = [rest for rest in rests if rest.strip()]
    return tuple(forms), is_of_several


def _is_prefix_of_nearly_all(form: re.Pattern[str], lines: list[str]) -> bool:
    """Do nearly all lines begin with this form of prefix, and with few different names?"""
    return _are_nearly_all_true(form.match(line) is not None for line in lines) and len(
        _source_names(form, lines)
    ) <= min(MAX_SOURCES, max(1, len(lines) // 3))


def _source_names(form: re.Pattern[str], lines: list[str]) -> set[str]:
    """The names that a form finds in front of lines."""
    if "source" not in form.groupindex:
        return set()
    return {match["source"] for line in lines if (match := form.match(line))}


def _strip_prefixes(text: str, forms: tuple[re.Pattern[str], ...], *, is_of_several: bool) -> str:
    """A line without its prefixes; with the name of its source where there are several."""
    source = ""
    for form in forms:
        match = form.match(text)
        if match is None:
            break
        source = source or match.groupdict().get("source") or ""
        text = text[match.end() :]
    return f"[source {source}] {text}" if source and is_of_several else text


def _text_in_docker_record(text: str) -> str:
    """What a program printed, out of a JSON record of Docker's log."""
    if not text.startswith(DOCKER_RECORD):
        return text
    try:
        record = parse_json(text, LOG_RECORD)
    except ValueError:
        return text
    printed = record.get("log") if isinstance(record, dict) else None
    return printed.rstrip("\r\n") if isinstance(printed, str) else text
