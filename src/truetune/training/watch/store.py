"""The looks of a run on disk: one Parquet file a look, a line for each finding.

`samples/step-00000100.parquet` has a row for each prompt; its schema's metadata has the step, the seconds it took and
the limit of new tokens.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from truetune.checks.findings import Finding
from truetune.data.atomic import write_atomically
from truetune.data.output_folder import Stranger, stranger_error
from truetune.errors import DataError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SamplingPass, Scores
from truetune.parsing.columnar_reader import read_table
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import LOG_RECORD, RESULT

SAMPLES, FINDINGS = "samples", "findings.jsonl"
NAMED = re.compile(r"step-\d{8,}\.parquet")
META = b"truetune"
IDS = pa.list_(pa.int32())
SCHEMA = pa.schema(
    [
        ("step", pa.int64()), ("prompt", pa.string()), ("answer", pa.string()), ("reference", pa.string()),
        ("file", pa.string()), ("line", pa.int64()), ("seen", pa.bool_()),
        ("stop", pa.int32()), ("stop_probability", pa.float64()), ("stop_rank", pa.int32()),
        ("stopped", pa.bool_()), ("empty", pa.bool_()), ("looped", pa.bool_()), ("repetition", pa.float64()),
        ("echoed", pa.bool_()), ("markers", pa.list_(pa.string())), ("language", pa.string()),
        ("switched", pa.bool_()), ("length_ratio", pa.float64()), ("exact", pa.bool_()), ("overlap", pa.float64()),
        ("parsed", pa.bool_()), ("agrees", pa.bool_()), ("garbage", pa.bool_()), ("perplexity", pa.float64()),
        ("too_long", pa.bool_()), ("end_known", pa.bool_()), ("alike", pa.bool_()),
        ("elsewhere", pa.bool_()), ("escapes", pa.list_(pa.string())),
        ("prompt_ids", IDS), ("answer_ids", IDS), ("reference_ids", IDS),
    ]
)  # fmt: skip
SCORES = tuple(field.name for field in dataclasses.fields(Scores))
LATER = ("garbage", "perplexity", "too_long", "end_known", "alike", "elsewhere", "escapes")
"""Scores that older files do not have"""
KEPT = ("rule", "code", "severity", "message", "remedy", "evidence", "count", "total")


def is_look(path: Path) -> bool:
    """Is this a file that `save` wrote, by its name and its contents?"""
    if path.is_symlink() or not NAMED.fullmatch(path.name):
        return False
    try:
        return META in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def save(look: SamplingPass, limit: int, folder: Path) -> Path:
    """Write a look, in place of an older one of its step. Raises OSError, and UsageError for a file that is none."""
    target = folder / SAMPLES / f"step-{look.step:08d}.parquet"
    if os.path.lexists(target) and not is_look(target):
        raise stranger_error(Stranger(target, "truetune did not write it"))
    target.parent.mkdir(parents=True, exist_ok=True)
    facts = {"step": look.step, "seconds": look.seconds, "limit": limit}
    table = pa.Table.from_pylist([row(look.step, sample) for sample in look.samples], SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({META: json.dumps(facts)}), sink)
    write_atomically(target, sink.getvalue().to_pybytes())
    return target


def row(step: int, sample: Sample) -> dict[str, Any]:
    """A sample as columns."""
    prompt, answer = sample.prompt, sample.answer
    return {
        "step": step,
        "prompt": prompt.question,
        "answer": answer.text,
        "reference": prompt.reference,
        "file": prompt.file,
        "line": prompt.line,
        "seen": prompt.seen,
        "stop": answer.stop,
        "stop_probability": answer.stop_probability,
        "stop_rank": answer.stop_rank,
        **{name: getattr(sample.scores, name) for name in SCORES},
        "markers": list(sample.scores.markers),
        "prompt_ids": prompt.ids,
        "answer_ids": answer.ids,
        "reference_ids": prompt.reference_ids,
    }


def read(folder: Path, until: int | None = None) -> list[tuple[SamplingPass, int]]:
    """The looks of a run with their limits, by step, those after the step `until` left out. Raises DataError."""
    looks = (_look(path) for path in sorted((folder / SAMPLES).glob("step-*.parquet")))
    return [(look, limit) for look, limit in looks if until is None or look.step <= until]


def _look(path: Path) -> tuple[SamplingPass, int]:
    try:
        table = read_table(path)
        facts = parse_json((table.schema.metadata or {})[META], RESULT)
        samples = tuple(_sample(columns) for columns in table.to_pylist())
        return SamplingPass(int(facts["step"]), samples, float(facts["seconds"])), int(
            facts["limit"]
        )
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is no look of a run ({type(error).__name__}: {error}); delete it or restore it"
        ) from None


def _sample(columns: dict[str, Any]) -> Sample:
    names = ("prompt_ids", "answer_ids", "reference_ids")
    asked, said, wanted = (tuple(columns[name]) for name in names)
    of_prompt = (
        columns["prompt"],
        columns["reference"],
        wanted,
        columns["file"],
        columns["line"],
        columns["seen"],
    )
    of_answer = (
        columns["answer"],
        columns["stop"],
        columns["stop_probability"],
        columns["stop_rank"],
    )
    known: dict[str, Any] = {
        name: columns[name] for name in SCORES if name in columns or name not in LATER
    }
    for name in ("markers", "escapes"):
        if name in known:
            known[name] = tuple(columns[name] or ())
    scores = Scores(**known)
    return Sample(Prompt(asked, *of_prompt), Answer(said, *of_answer), scores)


def note(
    findings: Iterable[Finding], step: int, folder: Path, *, stopped: Finding | None = None
) -> None:
    """Add what was found at a step; `stopped` is the one that ended the run. Raises OSError."""
    lines = [
        json.dumps({"step": step, **_record(finding), "stopped": finding is stopped})
        for finding in findings
    ]
    if lines:
        with (folder / FINDINGS).open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def _record(finding: Finding) -> dict[str, Any]:
    cases = [dataclasses.asdict(case) for case in finding.cases]
    return {name: getattr(finding, name) for name in KEPT} | {"cases": cases}


def rewind(folder: Path, step: int) -> tuple[list[Finding], int]:
    """Forget what was seen after a step, where a run goes on from there: the findings up to it, and how many looks were
    removed. Raises OSError."""
    later = [
        path
        for path in (folder / SAMPLES).glob("step-*.parquet")
        if is_look(path) and int(path.stem.partition("-")[2]) > step
    ]
    for path in later:
        path.unlink()
    file = folder / FINDINGS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    records = [record for line in lines if (record := _read(line)) and record["step"] <= step]
    if lines:
        write_atomically(file, "".join(json.dumps(record) + "\n" for record in records).encode())
    return [_finding(record) for record in records], len(later)


def is_finding(line: bytes) -> bool:
    """Is this a line that `note` wrote?"""
    try:
        return _read(line.decode()) is not None
    except UnicodeDecodeError:
        return False


def _finding(record: dict[str, Any]) -> Finding:
    return Finding(
        **{name: record[name] for name in KEPT} | {"evidence": tuple(record["evidence"])}
    )


def _read(line: str) -> dict[str, Any] | None:
    """None for the rest of a line that a crash has cut."""
    try:
        record = parse_json(line, LOG_RECORD)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {"step", *KEPT} <= record.keys() else None
