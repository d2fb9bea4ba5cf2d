"""Sampling passes on disk: all scores are kept, and files of older releases are read."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from truetune.errors import DataError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SamplingPass, Scores
from truetune.generation.sampling_pass_files import (
    SCHEMA,
    read_passes_with_new_token_limits,
    save_pass,
)

# Each value is another than the default, so that a score which is not saved shows.
SCORES = Scores(
    stopped=False,
    empty=True,
    looped=True,
    repetition=0.5,
    echoed=True,
    markers=("<|im_start|>",),
    language="de",
    switched=True,
    length_ratio=2.0,
    exact=False,
    overlap=0.25,
    parsed=True,
    agrees=False,
    garbage=True,
    perplexity=3.5,
    too_long=True,
    end_known=False,
    alike=True,
    elsewhere=True,
    gives=False,
    escapes=("\\n",),
    reward=0.5,
    advantage=-1.25,
)


def saved(folder: Path) -> Path:
    prompt = Prompt((1, 2), "Where is it?", "There.", (3, 4), "held.jsonl", 7, seen=True)
    answer = Answer((5,), "Here.", None, 0.5, 3)
    return save_pass(SamplingPass(100, (Sample(prompt, answer, SCORES),), 1.5), 64, folder)


def test_every_score_is_saved_and_read(tmp_path: Path) -> None:
    names = {field.name for field in fields(Scores)}
    unset = [
        field.name
        for field in fields(Scores)
        if field.default is not MISSING and getattr(SCORES, field.name) == field.default
    ]
    assert unset == []
    assert names <= set(SCHEMA.names)
    saved(tmp_path)
    (((sample,), limit),) = [
        (look.samples, limit) for look, limit in read_passes_with_new_token_limits(tmp_path)
    ]
    assert (sample.scores, limit) == (SCORES, 64)
    assert (sample.prompt.line, sample.prompt.seen, sample.answer.stop_rank) == (7, True, 3)


def without_columns(path: Path, *names: str) -> None:
    table: Any = pq.read_table(path)
    pq.write_table(table.drop_columns(list(names)), path)


def test_a_score_that_an_older_release_did_not_know_has_its_default(tmp_path: Path) -> None:
    without_columns(saved(tmp_path), "escapes", "end_known")
    ((look, _),) = read_passes_with_new_token_limits(tmp_path)
    assert (look.samples[0].scores.escapes, look.samples[0].scores.end_known) == ((), True)


def test_a_file_without_a_score_of_every_release_is_broken(tmp_path: Path) -> None:
    without_columns(saved(tmp_path), "looped")
    with pytest.raises(DataError, match="KeyError: 'looped'"):
        read_passes_with_new_token_limits(tmp_path)
