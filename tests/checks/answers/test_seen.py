from __future__ import annotations

import random
from math import comb
from typing import Any

import pytest

from tests.checks.pages.answers import look, watched
from truetune.checks.answers.count_bad_answers_per_pass import (
    MAX_CHANCE,
    BadAnswerCount,
    count_bad_answers,
    is_bad_share_surely_above,
    is_late_in_run,
    p_value_of_rise,
)
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import (
    findings_new_or_worse,
    findings_on_sampled_answers,
    report_on_answers,
)
from truetune.generation.answer_samples import SampledRun
from truetune.settings.run_spec import RunSpec


def rules(example: dict[str, Any]) -> dict[str, str]:
    """Severity of what is found, by rule."""
    return {
        finding.rule: finding.severity for finding in findings_on_sampled_answers(watched(example))
    }


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ((0, 8), (5, 8), 56 / comb(16, 5)),
        ((0, 8), (8, 8), 1 / comb(16, 8)),
        ((1, 8), (1, 8), 0.7666667),
        ((3, 8), (0, 8), 1.0),
    ],
)
def test_fishers_exact_test(first: tuple[int, int], last: tuple[int, int], expected: float) -> None:
    assert p_value_of_rise(BadAnswerCount(0, *first), BadAnswerCount(1, *last)) == pytest.approx(
        expected
    )


def test_one_or_two_of_eight_are_noise() -> None:
    for before in range(9):
        for more in (1, 2, 3):
            if before + more <= 8:
                assert (
                    p_value_of_rise(
                        BadAnswerCount(0, before, 8), BadAnswerCount(1, before + more, 8)
                    )
                    >= MAX_CHANCE
                )
    assert p_value_of_rise(BadAnswerCount(0, 0, 8), BadAnswerCount(1, 5, 8)) < MAX_CHANCE
    assert p_value_of_rise(BadAnswerCount(0, 0, 8), BadAnswerCount(1, 6, 8)) < MAX_CHANCE / 5
    assert p_value_of_rise(BadAnswerCount(0, 1, 20), BadAnswerCount(1, 8, 20)) < MAX_CHANCE


def test_often_is_a_binomial_tail() -> None:
    assert not is_bad_share_surely_above(BadAnswerCount(0, 0, 8), 0.0)
    assert not is_bad_share_surely_above(BadAnswerCount(0, 1, 8), 0.05)
    assert not is_bad_share_surely_above(BadAnswerCount(0, 2, 8), 0.05)
    assert is_bad_share_surely_above(BadAnswerCount(0, 3, 8), 0.05)
    assert is_bad_share_surely_above(BadAnswerCount(0, 8, 8), 0.5)
    assert not is_bad_share_surely_above(BadAnswerCount(0, 7, 8), 0.5)


def test_early_is_not_late() -> None:
    looks = (look(0), look(49))
    assert not is_late_in_run(SampledRun(looks))
    assert not is_late_in_run(SampledRun(looks, total=100))
    assert is_late_in_run(SampledRun((*looks, look(50)), total=100))
    assert is_late_in_run(SampledRun(looks, finished=True))


def test_runs_that_hover_are_silent() -> None:
    """A model of which each prompt stops seven times in ten, at every look, is told as worse in few runs."""
    draw, fired = random.Random(0), 0
    for _ in range(300):
        looks = [
            look(step, stopped=[draw.random() < 0.7 for _ in range(8)]) for step in range(0, 60, 10)
        ]
        found = count_bad_answers(
            SampledRun(tuple(looks)), lambda sample: not sample.scores.stopped
        )
        fired += found is not None and found.best is not None
    assert fired <= 3


GOOD_RUN: dict[str, Any] = {
    "total": 400,
    "finished": True,
    "losses": [{"step": s, "assistant content": c, "stop token": t}
               for s, c, t in ((10, 2.1, 6.0), (100, 1.5, 0.4), (200, 1.2, 0.1), (300, 1.1, 0.05), (400, 1.0, 0.05))],
    "looks": [
        {"step": 0, "stopped": 0, "stop_probability": 0.00001, "looped": 7, "markers": 3, "echoed": 2, "overlap": 0.1},
        {"step": 100, "stopped": 5, "stop_probability": 0.7, "looped": 2, "markers": 0, "echoed": 1, "overlap": 0.3},
        {"step": 200, "stopped": 7, "stop_probability": 0.9, "looped": 1, "overlap": 0.4},
        {"step": 400, "stopped": 7, "stop_probability": 0.9, "looped": 1, "switched": 1, "overlap": 0.45},
    ],
}  # fmt: skip


def test_a_base_model_that_learns_is_silent_at_every_look() -> None:
    for seen in range(1, 5):
        part = {**GOOD_RUN, "looks": GOOD_RUN["looks"][:seen], "finished": seen == 4}
        assert rules(part) == {}


def test_never_learned_is_an_error_late_and_nothing_early() -> None:
    looks = [
        {"step": step, "stopped": 0, "stop_probability": 0.00001, "overlap": step / 400}
        for step in (0, 100, 200)
    ]
    losses = [{"step": 10, "all": 2.0}, {"step": 200, "all": 1.0}]
    assert rules({"looks": looks[:2], "losses": losses, "total": 400}) == {}
    assert rules({"looks": looks, "losses": losses, "total": 400}) == {
        "answers-never-stop": "error"
    }
    assert rules({"looks": looks, "losses": losses[:1] * 2, "total": 400}) == {
        "answers-never-stop": "warning"
    }


def test_learned_and_not_reached_is_a_note() -> None:
    looks = [{"step": 400, "stopped": 0, "stop_probability": 0.95}]
    assert rules({"looks": looks, "finished": True}) == {"answers-never-stop": "info"}


def test_seven_prompts_make_no_error() -> None:
    looks = [{"step": 400, "prompts": 7, "stopped": 0, "stop_probability": 0.00001}]
    assert rules({"looks": looks, "finished": True}) == {"answers-never-stop": "warning"}


def test_lost_is_told_once_and_by_its_own_rule() -> None:
    looks = [
        {"step": 0, "stopped": 8, "stop_probability": 0.9},
        {"step": 400, "stopped": 0, "stop_probability": 1e-6},
    ]
    assert rules({"looks": looks, "finished": True}) == {"stop-rate-falls": "error"}
    looks[1]["stop_probability"] = 0.2
    assert rules({"looks": looks, "finished": True}) == {"stop-rate-falls": "warning"}


def test_references_beyond_the_limit_do_not_count() -> None:
    looks = [{"step": 400, "stopped": 0, "stop_probability": 0.00001}]
    assert rules({"looks": looks, "finished": True, "limit": 2}) == {}


def test_two_classes_are_no_collapse() -> None:
    classes = ["yes", "no"] * 4
    looks = [{"step": 400, "references": classes, "answers": ["yes"] * 5 + ["no"] * 3}]
    assert rules({"looks": looks, "finished": True}) == {}
    looks = [{"step": 0}, {"step": 50, "references": classes, "answers": "yes"}]
    assert rules({"looks": looks, "total": 400}) == {}
    looks = [{"step": 400, "answers": "yes"}]
    assert rules({"looks": looks, "finished": True}) == {"one-answer-to-all": "error"}


def test_no_stop_token_in_the_losses() -> None:
    losses = [{"step": step, "assistant content": 2 - step / 100} for step in (10, 20, 30, 40)]
    assert rules({"losses": losses, "looks": [{"step": 40}], "total": 400}) == {
        "stop-token-not-learned": "error"
    }


def test_selected_and_ignored_rules() -> None:
    subject = watched(
        {
            "finished": True,
            "looks": [{"step": 1, "stopped": 0, "stop_probability": 0.0, "looped": 8}],
        }
    )
    assert {f.code for f in findings_on_sampled_answers(subject)} == {"ANS001", "ANS003"}
    assert {f.code for f in findings_on_sampled_answers(subject, RunSpec(ignore=("ANS001",)))} == {
        "ANS003"
    }
    report = report_on_answers(subject, RunSpec(select=("answers-loop",)), "model")
    assert [f.code for f in report.findings] == ["ANS003"]
    assert dict(report.subjects[0].facts)["prompts"] == "8, at most 128 new tokens"
    assert findings_on_sampled_answers(SampledRun(())) == ()


def found(severity: Any, count: int) -> Finding:
    return Finding("rule", "ANS001", severity, "message", "remedy", count=count, total=8)


def test_findings_are_said_again_only_when_they_get_worse() -> None:
    said: dict[str, Finding] = {}
    told = [
        bool(findings_new_or_worse([found(*now)], said))
        for now in (
            ("warning", 4),
            ("warning", 4),
            ("warning", 5),
            ("warning", 6),
            ("warning", 3),
            ("error", 6),
            ("warning", 8),
            ("error", 8),
        )
    ]
    assert told == [True, False, False, True, False, True, False, False]
    assert findings_new_or_worse([], said) == []
