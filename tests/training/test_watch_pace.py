from __future__ import annotations

from math import inf

from truetune.training.watch.sampling_pass_size_and_schedule import (
    PassCosts,
    PassSchedule,
    choose_pass_size,
)

GIVEN = {"prompts": 20, "limit": 128, "needed_tokens": 60, "planned": 7}


def test_a_long_run_keeps_all() -> None:
    size = choose_pass_size(PassCosts(0.1, 0.2, 0.05), rows=100_000, budget=0.03, **GIVEN)
    assert (size.prompts, size.limit, size.looks, size.note) == (20, 128, 7, "")


def test_a_shorter_run_has_fewer_looks_then_shorter_answers_then_fewer_prompts() -> None:
    sizes = [
        choose_pass_size(PassCosts(0.1, 0.2, 0.05), rows=rows, budget=0.03, **GIVEN)
        for rows in range(20_000, 200, -200)
    ]
    cost = [2 * 0.1 * size.prompts + 0.05 * size.limit for size in sizes]
    within = [
        size.looks * c <= 0.03 * 3 * 0.1 * rows
        for size, c, rows in zip(sizes, cost, range(20_000, 200, -200), strict=True)
    ]
    assert within == sorted(within, reverse=True)
    assert 0 < sum(within) < len(within)
    assert [size.seconds for size in sizes] == cost
    least = (sizes[-1].prompts, sizes[-1].limit, sizes[-1].looks)
    assert least == (8, 32, 2)
    assert {size.looks for size in sizes if size.limit < 128} <= {2, 3, 4, 5, 6, 7}
    assert all(
        size.limit == 128
        for size in sizes
        if size.looks > 3 and size.prompts == 20 and not size.note
    )
    assert "20 prompts become 8" in sizes[-1].note
    assert "128 new tokens become 32" in sizes[-1].note


def test_references_say_how_short_an_answer_may_be() -> None:
    size = choose_pass_size(PassCosts(0.1, 0.2, 0.05), rows=3_000, budget=0.03, **GIVEN)
    assert (size.prompts, size.limit) == (20, 60)


def test_a_training_that_samples_itself_takes_longer_and_leaves_more_time() -> None:
    costs = PassCosts(0.1, 0.2, 0.05)
    short = choose_pass_size(costs, rows=3_000, budget=0.03, **GIVEN)
    sampling = choose_pass_size(costs, rows=3_000, budget=0.03, sampled=1_000, **GIVEN)
    assert (short.limit, short.looks) < (sampling.limit, sampling.looks)
    assert (sampling.limit, sampling.note) == (128, "")


def test_without_a_bound_all_is_made() -> None:
    size = choose_pass_size(PassCosts(0.1, 0.2, 9.0), rows=1, budget=inf, **GIVEN)
    assert (size.prompts, size.limit, size.looks) == (20, 128, 7)


def watched(
    total: int, step: float, look: float, budget: float = 0.03, every: int = 1
) -> PassSchedule:
    """A run whose steps and looks take so many seconds each."""
    pace, now, following = PassSchedule(total, budget, every), 0.0, 0
    for at in range(total + 1):
        now += step if at else 0.0
        if at == 0:
            pace.looks.append((at, look))
            now, following = now + look, pace.next_sampling_step(0, 6)
        elif at in (following, total):
            following = at + every
            if pace.is_due(at, at, now):
                pace.looks.append((at, look))
                now += look
                following = pace.next_sampling_step(at, pace.passes_left(at, at, now))
    return pace


def test_looks_are_spread_over_the_run() -> None:
    assert [step for step, _ in watched(600, 1.0, 1.0, every=100).looks] == [
        0,
        100,
        200,
        300,
        400,
        500,
        600,
    ]


def test_looks_keep_to_the_budget() -> None:
    for look in (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0):
        pace = watched(300, 1.0, look, every=50)
        assert len(pace.looks) == 2 or pace.seconds_of_all_passes <= 0.03 * (
            300 + pace.seconds_of_all_passes
        )
        assert [pace.looks[0][0], pace.looks[-1][0]] == [0, 300]
    assert len(watched(300, 1.0, 1.2, every=50).looks) == 7
    assert 3 <= len(watched(300, 1.0, 2.5, every=50).looks) <= 4
    assert len(watched(300, 1.0, 8.0, every=50).looks) == 2


def test_a_first_look_that_was_slow_does_not_count_for_all() -> None:
    pace = PassSchedule(1000, 0.03, 100, looks=[(0, 12.0)], expected=1.0)
    assert pace.is_due(100, 100, 112.0)
    pace.looks.append((100, 2.0))
    assert int(pace.passes_left(100, 100, 114.0)) == 8
    assert pace.next_sampling_step(100, 8) == 213


def test_a_run_that_ends_at_once() -> None:
    assert [step for step, _ in watched(1, 1.0, 1.0).looks] == [0, 1]
    assert [step for step, _ in watched(0, 1.0, 1.0).looks] == [0]
