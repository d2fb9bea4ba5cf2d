"""The sampling passes of a run on disk: one Parquet file a pass.

`samples/step-00000100.parquet` has a row for each prompt; its schema's metadata has the step, the seconds it took and
the limit of new tokens. One file a pass, and not one that grows: a crash costs the last pass at most.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from truetune.data.guard_output_folder import ForeignFile, foreign_file_error
from truetune.data.write_atomically import write_atomically
from truetune.errors import DataError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SamplingPass, Scores
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_parquet_and_arrow_within_limits import read_parquet_table

SAMPLES = "samples"
"""The folder of them, in that of a run"""
ROLLOUTS = "rollouts"
"""The folder of the answers that a training by rewards has sampled and learned from; its files have the same form"""
SAMPLE_FILE_NAME = re.compile(r"step-\d{8,}\.parquet")
META_KEY = b"truetune"
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
        ("elsewhere", pa.bool_()), ("gives", pa.bool_()), ("escapes", pa.list_(pa.string())),
        ("reward", pa.float64()), ("advantage", pa.float64()),
        ("prompt_ids", IDS), ("answer_ids", IDS), ("reference_ids", IDS),
    ]
)  # fmt: skip
"""`Table.from_pylist` drops what has no column here without a word: tests/generation/test_sample_files.py compares it
with `Scores`"""
SCORES = tuple(field.name for field in dataclasses.fields(Scores))
# So that the runs of older releases can still be read and compared.
SCORES_WITH_DEFAULT = frozenset(
    field.name for field in dataclasses.fields(Scores) if field.default is not dataclasses.MISSING
)
"""Scores that older files need not have"""
TUPLE_SCORES = ("markers", "escapes")
"""Scores that are tuples, which Parquet gives back as lists"""


def is_sample_file(path: Path) -> bool:
    """Is this a file that `save_pass` wrote, by its name and its contents?"""
    # By name and metadata: a user's own Parquet file of such a name is never replaced.
    if path.is_symlink() or not SAMPLE_FILE_NAME.fullmatch(path.name):
        return False
    try:
        return META_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def save_pass(
    sampling_pass: SamplingPass, limit: int, folder: Path, *, within: str = SAMPLES
) -> Path:
    """Write a sampling pass, instead of an older one of its step.

    Args:
        sampling_pass: the pass.
        limit: new tokens after which its answers were cut.
        folder: of the run; the file is `samples/step-00000100.parquet` in it.
        within: SAMPLES or ROLLOUTS.

    Returns:
        The path of the file.

    Raises:
        OSError: it can't be written.
        UsageError: a file of that name is there, and none of ours.
    """
    target = folder / within / f"step-{sampling_pass.step:08d}.parquet"
    # Also for a broken link, which exists() would not see.
    if os.path.lexists(target) and not is_sample_file(target):
        raise foreign_file_error(ForeignFile(target, "truetune did not write it"))
    target.parent.mkdir(parents=True, exist_ok=True)
    facts = {"step": sampling_pass.step, "seconds": sampling_pass.seconds, "limit": limit}
    # With a schema, since a column of None alone would get the type null, and files of one run
    # could not be read together.
    table = pa.Table.from_pylist(
        [sample_as_columns(sampling_pass.step, sample) for sample in sampling_pass.samples], SCHEMA
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({META_KEY: json.dumps(facts)}), sink)
    write_atomically(target, sink.getvalue().to_pybytes())
    return target


def sample_as_columns(step: int, sample: Sample) -> dict[str, Any]:
    """A sample as columns: name of SCHEMA -> value."""
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
        "prompt_ids": prompt.ids,
        "answer_ids": answer.ids,
        "reference_ids": prompt.reference_ids,
    }


def read_passes_with_new_token_limits(
    folder: Path, until: int | None = None, *, within: str = SAMPLES
) -> list[tuple[SamplingPass, int]]:
    """The sampling passes of a run by step, each with its limit of new tokens; up to the step `until`. Those of
    ROLLOUTS where `within` says so.

    Less is saved of a prompt and an answer than they hold: the text and the chat of the prompt, the number of its row
    and the log-probability of the answer have their defaults.

    Raises:
        DataError: a file is broken.
    """
    looks = (
        _read_pass_with_new_token_limit(path)
        for path in sorted((folder / within).glob("step-*.parquet"))
    )
    return [
        (sampling_pass, limit)
        for sampling_pass, limit in looks
        if until is None or sampling_pass.step <= until
    ]


def _read_pass_with_new_token_limit(path: Path) -> tuple[SamplingPass, int]:
    """One file with its limit. Raises DataError for one that is broken."""
    try:
        table = read_parquet_table(path)
        facts = parse_json((table.schema.metadata or {})[META_KEY], RESULT)
        samples = tuple(_parse_sample(columns) for columns in table.to_pylist())
        return SamplingPass(int(facts["step"]), samples, float(facts["seconds"])), int(
            facts["limit"]
        )
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is no pass of a run ({type(error).__name__}: {error}); delete it or restore it"
        ) from None


def _parse_sample(columns: dict[str, Any]) -> Sample:
    """A row as `sample_as_columns` wrote it, or an older release."""
    prompt = Prompt(
        ids=tuple(columns["prompt_ids"]),
        question=columns["prompt"],
        reference=columns["reference"],
        reference_ids=tuple(columns["reference_ids"]),
        file=columns["file"],
        line=columns["line"],
        seen=columns["seen"],
    )
    answer = Answer(
        ids=tuple(columns["answer_ids"]),
        text=columns["answer"],
        stop=columns["stop"],
        stop_probability=columns["stop_probability"],
        stop_rank=columns["stop_rank"],
    )
    return Sample(prompt, answer, _parse_scores(columns))


def _parse_scores(columns: dict[str, Any]) -> Scores:
    """The scores of a row; one that an older release did not know has its default. Raises KeyError for others."""
    known: dict[str, Any] = {
        name: columns[name] for name in SCORES if name in columns or name not in SCORES_WITH_DEFAULT
    }
    for name in TUPLE_SCORES:
        if name in known:
            known[name] = tuple(known[name] or ())
    return Scores(**known)
