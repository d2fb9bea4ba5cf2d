"""Warnings on a response marker that was not found: the quoted rows tell a missing marker from other tokens of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_output import found
from truetune.checks.diagnose_log import diagnose

NAMED, ZEROS = "fault-named-in-the-output", "loss-or-gradient-exactly-zero"
FOUND_NOWHERE = (
    "/opt/venv/lib/python3.10/site-packages/trl/trainer/utils.py:134: UserWarning: Could not find {kind} key"
    " `{marker}` in {the}following instance: <s> Below is a question.\n\n{row}</s> This instance will be ignored in"
    " loss calculation. Note, if this happens often, consider increasing the `max_seq_length`.\n  warnings.warn(\n"
)
SHOWN, CUT = (
    "### Question:\nWho?\n\n### Response:\nThe council.",
    "### Question:\nWho? And when? And",
)


def run_of(
    row: str,
    marker: str = "### Response:",
    kind: str = "response",
    the: str = "the ",
    norm: str = "0.0",
) -> str:
    """The output of a run in which three rows are warned of, and whose losses are all 0."""
    records = "".join(
        f"{{'loss': 0.0, 'grad_norm': {norm}, 'learning_rate': {2e-4 - n * 1e-5}, 'epoch': {n / 10}}}\n"
        for n in range(1, 12)
    )
    return 3 * FOUND_NOWHERE.format(kind=kind, marker=marker, the=the, row=row) + records


@pytest.mark.parametrize(
    ("output", "is_in_the_rows"),
    [
        (run_of(SHOWN), True),
        (run_of(SHOWN, the=""), True),
        (run_of(SHOWN, "\\n### Response:\\n"), True),
        (run_of(SHOWN, "### Question:", "instruction"), True),
        (run_of("[INST] Who? [/INST] The council.", "[/INST]"), True),
        (run_of(CUT), False),
        (run_of(SHOWN, "<|assistant|>"), False),
        (run_of(CUT) + "### Response: stands in the text of another line\n", False),
    ],
)
def test_whether_the_rows_show_the_marker(
    tmp_path: Path, output: str, is_in_the_rows: bool
) -> None:
    text = found(tmp_path, output)[NAMED]
    assert ("the rows contain the marker" in text) is is_in_the_rows
    assert ("token ids" in text) is is_in_the_rows
    assert ("rows without a supervised token" in text) is not is_in_the_rows


def test_losses_of_zero_are_said_once(tmp_path: Path) -> None:
    assert ZEROS not in found(tmp_path, run_of(SHOWN))
    assert ZEROS not in found(tmp_path, run_of(CUT))
    silent = run_of(SHOWN).rpartition("warnings.warn(\n")[2]
    assert "no row has a label" in found(tmp_path, silent)[ZEROS]


@pytest.mark.parametrize(
    ("rows", "warnings", "severity"),
    [
        (208, 142, "error"),
        (208, 20, "error"),
        (208, 3, "info"),
        (1000, 12, "info"),
        (0, 3, "error"),
    ],
)
def test_how_many_rows_are_left_out(
    tmp_path: Path, rows: int, warnings: int, severity: str
) -> None:
    warned = "".join(
        FOUND_NOWHERE.format(
            kind="response", marker="\n### Response:", the="the ", row=f"{n} {SHOWN}"
        )
        for n in range(warnings)
    )
    mapped = f"Map: 100%|##########| {rows}/{rows} [00:00<00:00, 2310.11 examples/s]\n" * bool(rows)
    records = "".join(f"{{'loss': {2 - n / 20}, 'epoch': {n / 10}}}\n" for n in range(12))
    path = tmp_path / "run.log"
    path.write_text(mapped + warned + records, encoding="utf-8")
    finding = next(one for one in diagnose(path).findings if one.rule == NAMED)
    assert finding.severity == severity
    assert "the rows contain the marker" in finding.message
    assert (f"{warnings} of {rows:,} rows" in finding.message) is bool(rows)
