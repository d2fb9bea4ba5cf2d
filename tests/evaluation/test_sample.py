"""`truetune sample`: verdicts and causes on small real models, held-out rows alone, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.auditing import tiny
from tests.evaluation.answering import LIMIT, written
from truetune.cli.sample_and_judge_answers_command import sample as command
from truetune.data.guard_output_folder import file_digest
from truetune.errors import DataError, SpecError, TruetuneError, UsageError
from truetune.evaluation.choose_held_out_prompts import ChosenPrompts
from truetune.evaluation.choose_held_out_prompts import choose_prompts as choose
from truetune.evaluation.sample_model import (
    SamplingSettings,
    sample_and_score_answers,
    sample_model,
)
from truetune.evaluation.sample_report import SampleReport
from truetune.generation.answer_samples import Answer
from truetune.generation.backends.backend import Backend, Decoding
from truetune.generation.backends.model_source import find_model_source
from truetune.generation.backends.transformers_backend import TransformersBackend

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)


def asked(model: Path, rows: Path, **given: Any) -> SampleReport:
    return sample_model(str(model), [str(rows)], **{"count": 8, "max_new_tokens": LIMIT, **given})


def chosen(model: Path, rows: Path, count: int, **given: Any) -> ChosenPrompts:
    place = find_model_source(str(model))
    return choose(place, place.prepared(), [str(rows)], count, **given)


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)


def test_a_model_that_answers_and_stops_is_clean(right: Path, rows: Path) -> None:
    report = asked(right, rows)
    assert (report.success.good, report.success.of, report.verdicts["stops"]) == (8, 8, 8)
    assert report.findings == ()
    assert not report.failed()
    assert all(found.scores.exact for found in report.samples)
    assert report.stop_probability is not None and report.stop_probability > 0.5  # noqa: PT018
    assert report.success.low == pytest.approx(0.676, abs=1e-3)


def test_a_model_that_never_stops_fails_and_the_cause_comes_first(broken: Path, rows: Path) -> None:
    report = asked(broken, rows)
    assert (report.success.good, report.success.of) == (0, 8)
    assert report.failed()
    codes = [finding.code for finding in report.findings]
    assert "ANS001" in codes
    assert codes[0].startswith("CAU"), codes


def test_min_p_and_top_p_are_told_where_they_are_used(right: Path, rows: Path) -> None:
    given = {"temperature": 5.0, "count": 3, "diagnose": False}
    (subject,) = asked(right, rows, min_p=1.0, top_p=0.9, seed=2, **given).subjects
    assert dict(subject.facts)["answers"] == (
        f"temperature 5, top_p 0.9, min_p 1, seed 2, at most {LIMIT} new tokens"
    )
    whole, cut = asked(right, rows, **given), asked(right, rows, min_p=1.0, **given)
    assert "_p" not in dict(whole.subjects[0].facts)["answers"]
    assert all(sample.scores.exact for sample in cut.samples)
    assert not all(sample.scores.exact for sample in whole.samples)


def test_min_p_on_the_command_line(right: Path, rows: Path, tmp_path: Path) -> None:
    given = (right, "--data", rows, "-n", 2, "--max-new-tokens", LIMIT, "--min-p", 1)
    refused = ran(*given).exception
    assert isinstance(refused, UsageError)
    assert "min_p 1 does nothing to greedy answers" in str(refused)
    saved = tmp_path / "samples.jsonl"
    done = ran(*given, "--temperature", 5, "--save", saved)
    assert done.return_value == 0
    assert "temperature 5, min_p 1, seed 0" in " ".join(done.stdout.split())
    assert all(json.loads(line)["good"] for line in saved.read_text().splitlines())


@pytest.mark.parametrize("min_p", [-0.1, 1.5, float("nan")])
def test_a_min_p_that_is_no_share(min_p: float, right: Path, rows: Path) -> None:
    with pytest.raises(UsageError, match="expected a number from 0 to 1"):
        asked(right, rows, temperature=1.0, min_p=min_p)


def test_a_backend_that_does_not_know_min_p(right: Path, rows: Path) -> None:
    class Older(Backend):
        kind = "older"

        def answers(self, prompts: Any, decoding: Decoding, progress: Any = None) -> Any:
            return [Answer(one.reference_ids[:-1], one.reference, 2) for one in prompts]

    place = find_model_source(str(right))
    probes, prompts = place.prepared(), chosen(right, rows, 2).prompts
    with pytest.raises(UsageError, match="the backend older does not draw with min_p"):
        sample_and_score_answers(
            Older("m"), probes, prompts, SamplingSettings(temperature=1.0, min_p=0.1)
        )
    assert (
        len(sample_and_score_answers(Older("m"), probes, prompts, SamplingSettings()).samples) == 2
    )


def test_the_same_rows_by_the_same_seed(right: Path, rows: Path) -> None:
    lines = [
        [prompt.line for prompt in chosen(right, rows, 3, seed=seed).prompts]
        for seed in (1, 1, 2, 3)
    ]
    assert lines[0] == lines[1]
    assert len({tuple(each) for each in lines}) > 1


def test_rows_that_were_trained_on_are_left_out(right: Path, rows: Path, tmp_path: Path) -> None:
    model = shutil.copytree(right, tmp_path / "run")
    data: dict[str, Any] = {
        "held_out": [2, 5],
        "inputs": {"data": [{"file": "x", "digest": file_digest(rows)}]},
    }
    run = {"format": 1, "settings": {"data": [str(rows)]}, "data": data}
    (model / "run.json").write_text(json.dumps(run))
    report = sample_model(str(model), count=8, max_new_tokens=LIMIT)
    assert [(found.prompt.line, found.prompt.seen) for found in report.samples] == [
        (3, False),
        (6, False),
    ]
    assert "6 that were trained on are left out" in dict(report.subjects[0].facts)["prompts"]
    assert [prompt.line for prompt in chosen(model, rows, 8).prompts] == [3, 6]
    every = chosen(model, rows, 8, all_rows=True).prompts
    assert [prompt.seen for prompt in every] == [i not in (2, 5) for i in range(8)]
    data["held_out"] = []
    (model / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match="all 8 rows were trained on"):
        chosen(model, rows, 8)


def test_the_second_file_of_a_run_counts_from_its_own_start(right: Path, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{i}.jsonl", tiny.chats(8)[4 * i : 4 * i + 4]) for i in (0, 1)]
    model = shutil.copytree(right, tmp_path / "run")
    inputs = [{"file": str(file), "digest": file_digest(file)} for file in files]
    run = {"format": 1, "data": {"held_out": [1, 6], "inputs": {"data": inputs}}}
    (model / "run.json").write_text(json.dumps(run))
    assert [prompt.line for prompt in chosen(model, files[1], 8).prompts] == [3]
    files[0].unlink()
    with pytest.raises(DataError, match="all 4 rows were trained on"):
        chosen(model, files[1], 8)


def test_the_command_draws_saves_and_exits(
    right: Path, broken: Path, rows: Path, tmp_path: Path
) -> None:
    out, page, saved = (tmp_path / name for name in ("out.json", "page.html", "samples.jsonl"))
    done = ran(
        right, "--data", rows, "-n", 4, "--max-new-tokens", LIMIT, "--save", saved, "--html", page
    )
    assert done.return_value == 0
    assert "4 of 4 (95 %: 51 to 100 %) stop by themselves without a fault" in done.stdout
    assert "stops by itself" in done.stdout
    assert [json.loads(line)["verdict"] for line in saved.read_text().splitlines()] == ["stops"] * 4
    assert "Findings" in page.read_text()
    done = ran(
        broken,
        "--data",
        rows,
        "--max-new-tokens",
        LIMIT,
        "--format",
        "json",
        "-o",
        out,
        "--no-diagnose",
        "--save",
        tmp_path / "samples.parquet",
        "--min-success",
        0.5,
        "--ignore",
        "ANS",
        "--ignore",
        "ANS014",
    )
    assert done.return_value == 1
    document = json.loads(out.read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["findings"] == []
    found = document["sample"]
    assert (found["verdicts"], found["success"]["good"]) == ({"loop": 8}, 0)
    assert pq.read_table(tmp_path / "samples.parquet").num_rows == 8


def test_whole_answers_and_a_missed_share(broken: Path, rows: Path) -> None:
    arguments = (broken, "--data", rows, "--max-new-tokens", 8, "-v", "-n", 1, "--no-diagnose")
    done = ran(*arguments, "--min-success", 0.9)
    assert "cut by a short limit" in done.stdout
    assert "reference | There are " in done.stdout
    assert done.return_value == 1  # no answer can be judged


def test_a_parser_reads_the_answers(right: Path, rows: Path) -> None:
    assert asked(right, rows, parser="number").success.good == 8
    report = asked(right, rows, parser="json", diagnose=False)
    assert report.verdicts == {"unread": 8}
    with pytest.raises(SpecError, match="parser"):
        asked(right, rows, parser="nonsense")


def test_one_row(right: Path, tmp_path: Path) -> None:
    assert len(asked(right, written(tmp_path / "one.jsonl", tiny.chats(1))).samples) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no row"),
        (b'{"messages": [{"role": "user", "content": "Hi"}]}\n', "no answer"),
        (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}\n', "UTF-8"),
        (b"{", "rows.jsonl"),
    ],
)
def test_data_that_gives_no_prompt(right: Path, tmp_path: Path, body: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(body)
    with pytest.raises(DataError, match=message):
        asked(right, path)


def test_models_that_are_none(right: Path, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        asked(tmp_path / "nothing", rows)
    bare = shutil.copytree(
        right, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*", "*.jinja")
    )
    with pytest.raises(UsageError, match="--tokenizer"):
        asked(bare, rows)
    assert asked(bare, rows, tokenizer=str(right), count=1).success.good == 1
    with pytest.raises(UsageError, match="--data"):
        sample_model(str(right))
    with pytest.raises(TruetuneError, match=r"rows\.jsonl"):
        asked(right, tmp_path / "rows.jsonl")


def test_an_interrupt_frees_the_model(
    right: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = TransformersBackend.close

    def note_and_close(backend: TransformersBackend) -> None:
        closed.append(backend.name)
        close(backend)

    monkeypatch.setattr(TransformersBackend, "close", note_and_close)

    def interrupt(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(right, rows, progress=interrupt)
    assert closed == [str(right)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either MODEL or --watch"),
        (("a", "--watch", "b"), "either MODEL or --watch"),
        (("--watch", "a", "--against", "b"), "exclude each other"),
        (("a", "--once"), "--watch RUN"),
        (("a", "--save", "x.csv"), "jsonl or .parquet"),
        (("a", "--map", "x"), "NAME=VALUE"),
    ],
)
def test_options_that_contradict_each_other(arguments: tuple[str, ...], message: str) -> None:
    found = ran(*arguments).exception
    assert isinstance(found, UsageError)
    assert message in str(found)
