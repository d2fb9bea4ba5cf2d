"""evaluate, whole: what it measures, what it says of what it can't, and the command."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.auditing import tiny
from tests.evaluation.held import saved, write
from truetune.cli.evaluate_command import evaluate as command
from truetune.errors import DataError, UsageError
from truetune.evaluation import evaluate_losses_and_answers as module
from truetune.evaluation.evaluate_losses_and_answers import evaluate_model
from truetune.generation.backends.backend import Backend


@pytest.fixture(scope="module", autouse=True)
def quick_collection() -> Iterator[None]:
    """A backend that is closed collects garbage: what the libraries hold need not be looked at each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("other"), seed=8)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    return write(tmp_path, tiny.chats(10))


def names(report: Any) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_losses_and_stops_of_a_model(model: Path, held: Path) -> None:
    report = evaluate_model(str(model), [str(held)])
    found = report.evaluated
    assert found is not None
    assert found.rows == 10
    assert [loss.source for loss in found.model.losses] == [
        "all",
        "assistant content",
        "stop token",
        "first token",
    ]
    assert found.model.mean_loss_of_token_kind() == found.model.losses[0]
    assert all(7 < loss.mean < 8.5 for loss in found.model.losses)
    assert found.model.stops is not None
    assert found.model.stops.ends == 10
    assert names(report) == {"stopping-is-not-calibrated"}
    assert report.failed()
    assert any("trained on is not known" in note for note in report.notes)
    again = evaluate_model(str(model), [str(held)])
    assert again.evaluated == found


def test_against_another_model(model: Path, other: Path, held: Path) -> None:
    found = evaluate_model(str(model), [str(held)], against=str(other)).evaluated
    back = evaluate_model(str(other), [str(held)], against=str(model)).evaluated
    assert found is not None
    assert back is not None
    assert found.other == back.model
    for mine, theirs in zip(found.changes, back.changes, strict=True):
        assert mine.difference == pytest.approx(-theirs.difference)
        assert mine.p == pytest.approx(theirs.p)
    itself = evaluate_model(str(model), [str(held)], against=str(model))
    assert itself.evaluated is not None
    assert {(change.difference, change.p) for change in itself.evaluated.changes} == {(0.0, 1.0)}
    assert "no-better-than-base" not in names(itself)


def test_answers_and_their_agreement(model: Path, other: Path, held: Path) -> None:
    report = evaluate_model(
        str(model), [str(held)], answers=4, max_new_tokens=12, against=str(other), parser="number"
    )
    assert report.metrics is not None
    assert report.metrics.groups[0].samples == 4
    assert report.evaluated is not None
    assert report.evaluated.parser is not None
    assert all(
        a.both + a.only_this + a.only_other + a.neither <= 4 for a in report.evaluated.agreements
    )
    assert [agreement.measure[:10] for agreement in report.evaluated.agreements] == [
        "stops with",
        "the parser",
    ]


def test_a_wrong_parser_asks_no_model(model: Path, held: Path) -> None:
    report = evaluate_model(str(model), [str(held)], answers=4, parser="regex:unheard of (.*)")
    assert "parser-misses-gold-answers" in names(report)
    assert report.metrics is None
    assert any("no prompt was asked" in note for note in report.notes)


def test_rows_that_were_trained_on_stand_apart(model: Path, tmp_path: Path) -> None:
    chats = tiny.chats(12)
    held, trained = write(tmp_path, chats), write(tmp_path, chats[:4], "trained.jsonl")
    report = evaluate_model(str(model), [str(held)], trained_on=[str(trained)])
    found = report.evaluated
    assert found is not None
    assert found.seen is not None
    assert (found.rows, found.seen.rows, found.seen.of) == (8, 4, 12)
    assert found.seen.seen is not None
    assert found.seen.seen.rows == 4
    assert found.seen.unseen == found.model.mean_loss_of_token_kind()
    assert "evaluation-rows-were-trained-on" in names(report)
    all_seen = evaluate_model(str(model), [str(trained)], trained_on=[str(trained)]).evaluated
    assert all_seen is not None
    assert all_seen.seen is not None
    assert (all_seen.rows, all_seen.seen.rows, all_seen.seen.seen) == (4, 4, None)


def test_one_row_has_no_interval(model: Path, held: Path) -> None:
    report = evaluate_model(str(model), [str(held)], limit=1)
    assert report.evaluated is not None
    assert report.evaluated.rows == 1
    assert report.evaluated.model.losses[0].low is None
    assert not names(report)


def test_a_limit_draws_by_the_seed(model: Path, held: Path) -> None:
    means = [
        evaluate_model(str(model), [str(held)], limit=4, seed=seed).evaluated for seed in (0, 0, 1)
    ]
    losses = [found.model.losses[0].mean for found in means if found is not None]
    assert losses[0] == losses[1] != losses[2]


def test_rows_that_are_too_long_are_said(model: Path, tmp_path: Path) -> None:
    long = {
        "messages": [
            {"role": "user", "content": "why " * 600},
            {"role": "assistant", "content": "so"},
        ]
    }
    found = evaluate_model(str(model), [str(write(tmp_path, [*tiny.chats(2), long]))]).evaluated
    assert found is not None
    assert found.rows == 2
    assert list(found.skipped.values()) == [1]
    with pytest.raises(DataError, match="no row can be measured"):
        evaluate_model(str(model), [str(write(tmp_path, [long], "long.jsonl"))])


def test_nothing_to_measure(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row"):
        evaluate_model(str(model), [str(write(tmp_path, []))])
    with pytest.raises(DataError, match="no row can be measured"):
        evaluate_model(
            str(model),
            [str(write(tmp_path, [{"messages": [{"role": "user", "content": "Hi"}]}] * 2))],
        )
    with pytest.raises(UsageError, match="--data"):
        evaluate_model(str(model))
    with pytest.raises(UsageError, match="names no base"):
        evaluate_model(
            str(model), [str(write(tmp_path, tiny.chats(2), "two.jsonl"))], against="base"
        )


def test_a_backend_that_can_not_score(
    model: Path, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = module.open_backend

    def silent(*args: Any) -> Backend:
        backend = inside(*args)
        monkeypatch.setattr(backend, "score", lambda *given: None)
        return backend

    monkeypatch.setattr(module, "open_backend", silent)
    with pytest.raises(UsageError, match="can't tell the probabilities"):
        evaluate_model(str(model), [str(held)])
    report = evaluate_model(str(model), [str(held)], answers=2, max_new_tokens=4)
    assert report.evaluated is not None
    assert report.evaluated.model.losses == ()
    assert report.metrics is not None
    assert any("can't tell" in note for note in report.notes)
    assert not names(report)


def test_tasks_need_their_package(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install lm-eval"):
        evaluate_model(str(model), tasks=["arc_easy"])


def test_another_vocabulary_is_refused(model: Path, held: Path, tmp_path: Path) -> None:
    odd = saved(tmp_path / "odd")
    body = (odd / "tokenizer.json").read_text()
    spec = json.loads(body)
    vocabulary = spec["model"]["vocab"]
    first, second = (token for token, id in vocabulary.items() if id in (300, 301))
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (odd / "tokenizer.json").write_text(json.dumps(spec))
    rows = [
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": first.replace("Ġ", " ")},
            ]
        }
    ]
    data = write(tmp_path, [*tiny.chats(2), *rows])
    with pytest.raises(UsageError, match="another one"):
        evaluate_model(str(model), [str(data)], against=str(odd))


def test_the_command(model: Path, other: Path, held: Path, tmp_path: Path) -> None:
    given = [
        str(model),
        "--data",
        str(held),
        "--against",
        str(other),
        "--answers",
        "2",
        "--max-new-tokens",
        "4",
    ]
    done = CliRunner().invoke(command, [*given, "--verbose"], standalone_mode=False)
    assert done.exception is None
    assert done.return_value == 1
    for part in (
        "loss by source",
        "stop token",
        "against",
        "expected/actual stops",
        "stopping-is-not-calibrated",
        "answers",
        "P(stop) from",
    ):
        assert part in done.output
    out = tmp_path / "report.json"
    done = CliRunner().invoke(
        command, [*given[:3], "--format", "json", "-o", str(out)], standalone_mode=False
    )
    assert done.exception is None
    body = json.loads(out.read_text())["evaluation"]
    assert body["rows"]["model"]["losses"][0]["source"] == "all"
    assert body["answers"] is None
