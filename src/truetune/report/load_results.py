"""Reads the results that commands wrote as JSON, for a page, a baseline or a view, and joins several to one.

A file is taken for a result only if its schema says so. What a page needs is looked for before anything is drawn,
so that a file that was cut off or written by hand is refused with one sentence instead of a traceback. The
trade-off: only the parts that every page needs are checked; each section reads its own with care.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from truetune.errors import DataError, UsageError
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import read_json
from truetune.report.as_json import SCHEMA

Result = dict[str, Any]
JOINED_LISTS = ("subjects", "findings", "known", "examined", "not_judged", "views", "runs", "shown")
"""Lists, which follow one another"""
SUMMED = ("seconds", "failed", "outcome")
"""One value of all: the sum, whether any failed, the gravest"""
FROM_FIRST = ("schema", "truetune", "spec")
"""Taken from the first"""
OUTCOMES_BY_GRAVITY = ("findings", "not judged", "no findings")
"""The gravest of several holds"""
SENTENCES = ("verdict", "next", "summary")
"""Sentences: those of the first stand, or of the first that failed and has no findings to say so"""


def is_truetune_json(path: str) -> bool:
    """Does a JSON file say that truetune wrote it? Only its beginning is looked at."""
    file = Path(path)
    if file.suffix.lower() != ".json" or not file.is_file():
        return False
    with file.open("rb") as opened:
        # 400 bytes: the schema is the first key of every result. To parse each JSON that is
        # named on a command line would read gigabytes of data for a guess.
        return b'"truetune.' in opened.read(400)


def read_result_for_page(path: str) -> Result:
    """The result in a JSON file. Raises DataError where it is none that a page can be made of."""
    file = Path(path)
    try:
        value = read_json(file, RESULT)
    except InputLimitError as error:
        raise DataError(f"{path}: {error}") from None
    except ValueError as error:
        raise DataError(
            f"{path}: no JSON ({error}); is it cut off? Let the command write it again"
        ) from None
    schema = value.get("schema") if isinstance(value, dict) else None
    # A plan or a ladder has a schema of its own, and brings what a page needs with it.
    if schema != SCHEMA and not _is_result_with_values_for_page(value):
        raise DataError(
            f"{path}: schema {schema!r}; {SCHEMA!r} was expected, as --json of check, train,"
            " sample, evaluate and others writes it"
        )
    for name in ("subjects", *(("findings",) if schema == SCHEMA else ())):
        if not isinstance(value.get(name), list):
            raise DataError(
                f"{path}: `{name}` is not there, or no list; let the command write the file again"
            )
    # Results that are no report call their sentence `summary`; the page looks for `verdict`.
    result: Result = value | ({"verdict": value["summary"]} if "summary" in value else {})
    return result


def read_baseline_fingerprints(path: str) -> frozenset[str]:
    """The fingerprints of all findings in a report that truetune wrote as JSON.

    Raises UsageError where there is no such file, or it has no fingerprints; DataError where it is no report.
    """
    if not Path(path).is_file():
        raise UsageError(
            f"{path}: there is no such file; write a baseline with --json, then name it with"
            " --baseline"
        )
    findings = read_result_for_page(path).get("findings") or ()
    known = [finding.get("fingerprints") for finding in findings if isinstance(finding, dict)]
    # Without fingerprints every finding would count as new, which fails a build for no fault of
    # its own.
    if any(not isinstance(prints, list) for prints in known):
        raise UsageError(
            f"{path}: its findings have no fingerprints; an earlier truetune wrote it: write it"
            " again"
        )
    return frozenset(str(one) for prints in known if prints for one in prints)


def _is_result_with_values_for_page(value: Any) -> bool:
    """Has a result that is no report (of plan, ladder, ...) what a page needs?"""
    return (
        isinstance(value, dict)
        and str(value.get("schema")).startswith("truetune.")
        and "shown" in value
    )


def join_results(results: Sequence[tuple[str, Result]]) -> Result:
    """Join the results of several commands to one, as one run of all of them would have written it.

    Args:
        results: the names of the files, for messages, and what they hold.

    Returns:
        The joined result. Lists follow one another, seconds add up, the gravest outcome holds.

    Raises:
        UsageError: two results have the same part, such as two ledgers; one page can show only one of them.
    """
    whole = _choose_summary_for_joined_result([result for _, result in results])
    owner: dict[str, str] = {}
    for name, result in results:
        for key, value in result.items():
            if key in SENTENCES:
                continue
            if key in JOINED_LISTS or key in SUMMED:
                whole[key] = _join_common_part(key, whole, value)
            elif value is None or key in FROM_FIRST:
                # A null says that a command has no such part: another's may still take its place.
                whole.setdefault(key, value)
            else:
                if whole.get(key) is not None:
                    both = f"{name} and {owner[key]} both hold `{key}`"
                    raise UsageError(f"{both}; make a page of each")
                whole[key], owner[key] = value, name
    return whole


def _choose_summary_for_joined_result(results: Sequence[Result]) -> Result:
    """The summary sentences of a joined result: those of one that failed without a finding, else of
    the first.
    """
    # That of a failure that no finding tells of stands at the top. Otherwise a plan that does not fit would be drawn
    # below "no findings" of a check (test_what_failed_without_a_finding_is_said_to_have_failed).
    failed = (result for result in results if _failed_without_findings(result))
    speaker = next(failed, results[0] if results else {})
    return {key: speaker[key] for key in SENTENCES if key in speaker}


def _join_common_part(key: str, whole: Result, value: Any) -> Any:
    """The value of a part that all results may have, once one more result's `value` is joined to
    it.
    """
    if key in JOINED_LISTS:
        # Two results of one folder both list it as a subject, and both may have its run: each is shown once.
        before = whole.get(key, ())
        return [*before, *(one for one in value or () if one not in before)]
    if key == "seconds":
        return whole.get(key, 0) + value
    if key == "failed":
        return bool(whole.get(key)) or bool(value)
    return min(whole.get(key, value), value, key=OUTCOMES_BY_GRAVITY.index)


def _failed_without_findings(result: Result) -> bool:
    """Has a result failed for a reason that no finding names?"""
    return bool(result.get("failed")) and not result.get("findings")
