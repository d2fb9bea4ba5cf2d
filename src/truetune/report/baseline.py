"""A baseline: the fingerprints of an earlier report, as `--baseline` takes them from its JSON."""

from __future__ import annotations

from pathlib import Path

from truetune.errors import UsageError
from truetune.report.results import read_result


def read_baseline(path: str) -> frozenset[str]:
    """The fingerprints of all findings in a report that truetune wrote as JSON.

    Raises UsageError where there is no such file, or it has no fingerprints; DataError where it is no report.
    """
    if not Path(path).is_file():
        raise UsageError(
            f"{path}: there is no such file; write a baseline with --json, then name it with"
            " --baseline"
        )
    findings = read_result(path).get("findings") or ()
    known = [finding.get("fingerprints") for finding in findings if isinstance(finding, dict)]
    if any(not isinstance(prints, list) for prints in known):
        raise UsageError(
            f"{path}: its findings have no fingerprints; an earlier truetune wrote it: write it"
            " again"
        )
    return frozenset(str(one) for prints in known if prints for one in prints)
