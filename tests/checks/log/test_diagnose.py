"""diagnose: the report on a run's log."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.checks.loss_floors_from_frequencies import loss_floor_of_data
from truetune.demo import DATA, TOKENIZER
from truetune.errors import DataError, UsageError
from truetune.settings.read_truetune_settings import validate_settings

RUNS = Path(__file__).parents[2] / "logs" / "runs"
CHATS = [
    ("Is it open?", "It is."),
    ("Is it far?", "It is."),
    ("Is it dear?", "It is not dear at all."),
]


def chats(path: Path, answers: list[tuple[str, str]]) -> str:
    rows = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}
        for asked, said in answers
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_healthy_run_is_clean() -> None:
    report = diagnose(RUNS / "healthy-sft-cosine.json")
    assert report.findings == ()
    assert report.worst() is None
    facts = dict(report.subjects[0].facts)
    assert facts["steps"] == "80 of 80"
    assert facts["trains"] == "language modelling"
    assert facts["written by"] == "transformers"


def test_rules_can_be_chosen() -> None:
    assert [f.rule for f in diagnose(RUNS / "overfit.json").findings] == ["eval-loss-rises"]
    assert not diagnose(RUNS / "overfit.json", ignore="LOG015").findings
    assert not diagnose(RUNS / "overfit.json", select="flat-loss").findings


def test_settings_and_a_spec_are_not_both_taken() -> None:
    with pytest.raises(UsageError):
        diagnose(RUNS / "overfit.json", spec=validate_settings({}, "test"), ignore="LOG015")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        diagnose(tmp_path)


def test_the_floor_of_data(tmp_path: Path) -> None:
    data = loss_floor_of_data(
        validate_settings(
            {"data": chats(tmp_path / "a.jsonl", CHATS), "tokenizer": str(TOKENIZER)}, "test"
        )
    )
    assert (data.rows, data.examples) == (3, 3)
    assert data.commonest == pytest.approx(2 / 3)
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert data.answer == pytest.approx(entropy * 3 / data.supervised)
    assert data.answer < data.unigram < math.log(data.supervised)


def test_data_give_a_constant_answer_away(tmp_path: Path) -> None:
    data = chats(
        tmp_path / "a.jsonl",
        [(f"Question {i}?", "I do not know." if i % 10 else f"It is {i}.") for i in range(200)],
    )
    floor = loss_floor_of_data(
        validate_settings({"data": data, "tokenizer": str(TOKENIZER)}, "test")
    ).answer
    losses = [max(floor, 5 * 0.9**i) * (1 + 0.01 * math.sin(i * i)) for i in range(1, 101)]
    history = [{"step": i, "loss": loss, "epoch": i / 100} for i, loss in enumerate(losses, 1)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": history}), encoding="utf-8")
    assert not diagnose(state).findings
    of_data, of_loss = sorted(
        diagnose(state, data=data, tokenizer=str(TOKENIZER)).findings, key=lambda one: one.rule
    )
    assert of_data.rule == "few-distinct-answers"
    assert "180 of 200 rows" in of_data.message
    assert of_loss.rule == "shortcut-loss"
    assert "90%" in of_loss.message


def test_rows_of_the_wrong_column_are_told_beside_the_log(tmp_path: Path) -> None:
    words = ["harbour", "lantern", "keeper", "storm", "anchor", "captain", "tide", "gull"]
    rows = [
        {
            "problem": f"Problem {i}?",
            "state": "CONCLUDE",
            "training_text": " ".join(words[i % 7 :] + words[i % 5 :]),
        }
        for i in range(60)
    ]
    data, log = tmp_path / "rows.jsonl", tmp_path / "log.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    losses = [0.01 + 4 * 0.7**i + 1e-4 * math.sin(i) for i in range(30)]
    log.write_text(
        "".join(json.dumps({"step": i, "loss": loss}) + "\n" for i, loss in enumerate(losses, 1))
    )
    for answer, found in (("state", ["few-distinct-answers"]), ("training_text", [])):
        columns = {"instruction": "problem", "output": answer}
        report = diagnose(log, data=str(data), tokenizer=str(TOKENIZER), map=columns)
        assert [one.rule for one in report.findings] == found


def test_data_without_a_tokenizer_are_not_dropped_in_silence() -> None:
    report = diagnose(RUNS / "healthy-sft-cosine.json", data=str(DATA))
    missing = next(part for part in report.requested_not_judged() if part.what == "the data")
    assert missing.unlock == "name a tokenizer with -t"
    assert report.exit_code() == 3
