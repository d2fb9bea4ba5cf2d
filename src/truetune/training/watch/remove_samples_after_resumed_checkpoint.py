"""Removes the sampled answers and findings of a run after the checkpoint that it resumes from.

Steps behind the checkpoint are made again, with other answers perhaps: passes and findings of both would stand side by
side as if one run had shown them. The trade-off: what is forgotten is gone from the disk.
"""

from __future__ import annotations

import json
from pathlib import Path

from truetune.checks.findings import Finding
from truetune.checks.findings_file import (
    FINDINGS,
    parse_finding_line_as_json,
    parse_finding_without_cases,
)
from truetune.data.write_atomically import write_atomically
from truetune.generation.sampling_pass_files import SAMPLES, is_sample_file


def forget_later_samples(folder: Path, step: int) -> tuple[list[Finding], int]:
    """Remove the sampled answers and findings after a step, where a run resumes from there.

    Args:
        folder: of the run.
        step: of the checkpoint that it continues from.

    Returns:
        The findings up to that step, and how many passes were removed.

    Raises:
        OSError: a file can't be removed or written.
    """
    later = _sample_files_after(folder, step)
    for path in later:
        path.unlink()
    file = folder / FINDINGS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    parsed = (parse_finding_line_as_json(line) for line in lines)
    records = [record for record in parsed if record and record["step"] <= step]
    if lines:
        write_atomically(file, "".join(json.dumps(record) + "\n" for record in records).encode())
    return [parse_finding_without_cases(record) for record in records], len(later)


def _sample_files_after(folder: Path, step: int) -> list[Path]:
    """The files of passes after a step. Only files that this code wrote: they will be removed."""
    files = (folder / SAMPLES).glob("step-*.parquet")
    ours = (path for path in files if is_sample_file(path))
    return [path for path in ours if int(path.stem.partition("-")[2]) > step]
