"""What `truetune sample` gives: the answers with their verdicts, how many are good, and why the others are not.

The report of one model and that of a run's checkpoints are the same class: of checkpoints there are several sampling
passes, and what stands without a step is of the last. Samples are saved as flat rows, for other tools to read. The
trade-off: every answer is kept whole, so that a report of many prompts is large.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from truetune.checks.reports import Report
from truetune.data.guard_output_file import FileForm, write_output_file
from truetune.evaluation.compare_model_answers import SampleComparison
from truetune.evaluation.confidence_intervals_over_rows import wilson_interval
from truetune.generation.answer_samples import Prompt, Sample, SamplingPass
from truetune.generation.answer_verdicts import (
    VERDICT_PHRASES,
    Verdict,
    answer_faults,
    count_good_and_decidable,
    is_good_answer,
    main_verdict,
)
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

# Those that a reader can act on; the others are parts of verdicts.
SAVED_SCORES = (
    "repetition",
    "language",
    "length_ratio",
    "exact",
    "overlap",
    "parsed",
    "agrees",
    "garbage",
    "perplexity",
)
"""Scores that are written out"""
COLUMNS = (
    "file",
    "line",
    "row",
    "seen",
    "question",
    "answer",
    "reference",
    "verdict",
    "said",
    "faults",
    "good",
    "stopped",
    "stop",
    "stop_probability",
    "stop_rank",
    "logprob",
    "tokens",
    "markers",
    *SAVED_SCORES,
    "prompt_ids",
    "answer_ids",
    "reference_ids",
)
"""Names of the values of one answer, in JSON and in saved files (`sample_as_plain_values`)"""
META_KEY = b"truetune"
"""What the metadata of a Parquet file of ours have"""


@dataclass(frozen=True)
class Success:
    """How many answers are good, of those that can be told, and the share that is likely with more prompts."""

    good: int
    of: int
    low: float
    high: float
    """95 %, Wilson's interval"""

    @classmethod
    def of_pass(cls, sampling_pass: SamplingPass, limit: int) -> Success:
        """The success of one sampling pass, whose answers were cut after `limit` new tokens."""
        counts = count_good_and_decidable(sampling_pass.samples, limit)
        return cls(*counts, *wilson_interval(*counts))


@dataclass(frozen=True, kw_only=True, repr=False)
class SampleReport(Report):
    """The answers of a model, or of the checkpoints of a run."""

    name: str
    looks: tuple[SamplingPass, ...]
    """One; of a run that was followed one for each checkpoint"""
    limit: int
    """Tokens after which an answer was cut"""
    unanswered: tuple[Prompt, ...] = ()
    """Of the last sampling pass"""
    compared: SampleComparison | None = None
    notes: tuple[str, ...] = ()
    """What was asked for and not done, and what a reader should know"""
    min_success: float | None = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of the last sampling pass."""
        return self.looks[-1].samples if self.looks else ()

    @cached_property
    def success(self) -> Success:
        """How many answers of the last sampling pass are good."""
        return (
            Success.of_pass(self.looks[-1], self.limit) if self.looks else Success(0, 0, 0.0, 1.0)
        )

    @property
    def too_few(self) -> bool:
        """Is the interval of the share of good answers below `min_success`, or is the share not known?"""
        # The upper end of the interval: with a few prompts a share below the one asked for may be chance.
        return self.min_success is not None and (
            self.success.high < self.min_success or not self.success.of
        )

    @property
    def is_verified(self) -> bool:
        """Are most answers confirmed by their references or a parser? Without that only their form was judged."""
        # Half: a few references that are met say something of the rest, which is of the same rows.
        confirmed = sum(s.scores.exact is True or s.scores.agrees is True for s in self.samples)
        return 2 * confirmed > len(self.samples)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many answers of the last sampling pass have each verdict."""
        return Counter(main_verdict(sample, self.limit) for sample in self.samples)

    @property
    def stop_probability(self) -> float | None:
        """The median over the references of the probability of a stop; None where it is not known."""
        known = [
            sample.answer.stop_probability
            for sample in self.samples
            if sample.answer.stop_probability is not None
        ]
        return median(known) if known else None

    def failed(self) -> bool:
        """Is there a finding at or above `spec.fail_on`, or are, beyond chance, fewer good than asked for?"""
        return super().failed() or self.too_few

    def more(self) -> dict[str, Any]:
        """What a JSON report of answers has besides that of every report."""
        return {
            "sample": {
                "model": self.name,
                "limit": self.limit,
                "success": vars(self.success) | {"asked_for": self.min_success},
                "verdicts": dict(self.verdicts),
                "stop_probability": self.stop_probability,
                "looks": [
                    {
                        "step": sampling_pass.step,
                        "seconds": sampling_pass.seconds,
                        "success": vars(Success.of_pass(sampling_pass, self.limit)),
                    }
                    for sampling_pass in self.looks
                ],
                "samples": [sample_as_plain_values(sample, self.limit) for sample in self.samples],
                "unanswered": [
                    {"file": p.file, "line": p.line, "row": p.row, "question": p.question}
                    for p in self.unanswered
                ],
                "compared": self.compared and self.compared.plain(),
                "notes": list(self.notes),
            }
        }

    def save(self, path: str, inputs: Iterable[Path] = ()) -> None:
        """The samples of the last sampling pass as rows of a .parquet or .jsonl file.

        Raises UsageError where it can't be written, is one of the `inputs`, or holds what truetune did not write.
        """
        rows = [sample_as_plain_values(sample, self.limit) for sample in self.samples]
        # Anything else is JSONL: every tool reads that.
        parquet = path.endswith(".parquet")
        body = _parquet_bytes(rows) if parquet else _json_lines(rows)
        write_output_file(Path(path), body, SAMPLES_FORM, [*inputs, *map(Path, self.spec.data)])


def sample_as_plain_values(sample: Sample, limit: int) -> dict[str, Any]:
    """A sample as plain values by the names of COLUMNS.

    Args:
        sample: one answer.
        limit: new tokens after which it was cut.
    """
    prompt, answer, scores = sample.prompt, sample.answer, sample.scores
    verdict = main_verdict(sample, limit)
    values: dict[str, Any] = {
        "file": prompt.file,
        "line": prompt.line,
        "row": prompt.row,
        "seen": prompt.seen,
        "question": prompt.question,
        "answer": answer.text,
        "reference": prompt.reference,
        "verdict": verdict,
        "said": VERDICT_PHRASES[verdict],
        "faults": list(answer_faults(sample, limit)),
        "good": is_good_answer(sample, limit),
        "stopped": scores.stopped,
        "stop": answer.stop,
        "stop_probability": answer.stop_probability,
        "stop_rank": answer.stop_rank,
        "logprob": answer.logprob,
        "tokens": len(answer.ids),
        "markers": list(scores.markers),
        **{name: getattr(scores, name) for name in SAVED_SCORES},
        "prompt_ids": list(prompt.ids),
        "answer_ids": list(answer.ids),
        "reference_ids": list(prompt.reference_ids),
    }
    # JSON has no NaN and no infinity: strict readers refuse the whole file.
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in values.items()
    }


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    """Rows as JSONL."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet_bytes(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a Parquet file, marked as ours: only such a file is ever replaced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.replace_schema_metadata({META_KEY: b"samples"}), sink)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _was_samples_file_written_by_truetune(path: Path) -> bool:
    """Did we write this file? JSONL by its COLUMNS, those and no others; Parquet by its metadata.

    Raises OSError, ValueError.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return (pq.read_schema(path).metadata or {}).get(META_KEY) == b"samples"
    with path.open("rb") as file:
        return all(set(parse_json(line, RESULT)) == set(COLUMNS) for line in file)


SAMPLES_FORM = FileForm(
    "a file of samples that truetune wrote", _was_samples_file_written_by_truetune
)
