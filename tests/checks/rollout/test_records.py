"""Rollouts that a program of another stack records, by hand: what it leaves out is not judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truetune
from truetune import LossPass, RewardCall, RolloutSettings, RolloutStep

STOP, PAD = 9, 0
SETTINGS = RolloutSettings(
    loss_type="grpo",
    num_generations=2,
    max_completion_length=4,
    trainer_stops=(STOP,),
    sampler_stops=(STOP,),
    pad=PAD,
)
IDS = np.array([[5, 6, STOP, PAD], [5, STOP, PAD, PAD], [7, 8, 7, 8], [STOP, PAD, PAD, PAD]])
IN_LOSS = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], np.bool_)
SAMPLED = ((5, 6, STOP), (5, STOP), (7, 8, 7, 8), (STOP,))
REWARDS = np.array([[1.0], [0.0], [3.0], [1.0]])
HALF = 0.5 / (np.sqrt(0.5) + 1e-4)
ADVANTAGES = np.array([HALF, -HALF, 1 / (np.sqrt(2) + 1e-4), -1 / (np.sqrt(2) + 1e-4)])
PROMPTS = np.array([[1, 2], [1, 2], [PAD, 3], [PAD, 3]])


def step(**changes: Any) -> RolloutStep:
    """Two prompts with two completions each."""
    fields: dict[str, Any] = {
        "settings": SETTINGS,
        "prompt_ids": PROMPTS,
        "prompt_mask": PROMPTS != PAD,
        "completion_ids": IDS,
        "in_loss": IN_LOSS,
        "advantages": ADVANTAGES,
        "rewards": REWARDS,
        "sampled_ids": SAMPLED,
    }
    return RolloutStep(**{**fields, **changes})


def found(*steps: RolloutStep, **settings: Any) -> list[str]:
    """The rules that find something."""
    return [finding.rule for finding in truetune.audit_rollout(steps, **settings).findings]


def not_judged(*steps: RolloutStep) -> set[str]:
    return {part.what for part in truetune.audit_rollout(steps).not_judged}


def test_a_healthy_record() -> None:
    report = truetune.audit_rollout(step())
    assert report.findings == ()
    assert report.exit_code() == 0
    figures = {part.rule: part.figure for part in report.examined}
    assert figures["sampled-ids-are-not-trained"].endswith("0 of 4")
    assert figures["advantages-are-not-of-their-rewards"].endswith("0 of 4")
    assert figures["group-holds-several-prompts"].endswith("0 of 2")
    assert "loss-weighs-tokens-otherwise" in not_judged(step())
    assert (report.rollouts, report.completions) == (1, 4)


def test_no_step_is_not_clean() -> None:
    report = truetune.audit_rollout([])
    assert report.outcome == "not judged"
    assert report.exit_code() == 3


def test_without_what_the_sampler_gave_ids_and_masks_are_not_judged() -> None:
    bare = step(sampled_ids=None, rewards=None)
    assert {
        "sampled-ids-are-not-trained",
        "rollout-padding-in-loss",
        "sampled-tokens-left-out-of-loss",
        "stops-unknown-to-trainer",
        "advantages-are-not-of-their-rewards",
        "groups-without-reward-spread",
    } <= not_judged(bare)
    assert found(bare) == []


def test_a_stop_token_that_is_the_pad_token_is_padding_by_its_place_alone() -> None:
    """pad = eos: the sampled stop is in the loss, the pads behind it are not."""
    ids = np.where(IDS == PAD, STOP, IDS)
    same = step(completion_ids=ids, settings=replace(SETTINGS, pad=STOP))
    assert found(same) == []
    assert found(replace(same, in_loss=(ids != STOP) & IN_LOSS)) == [
        # A completion of a stop token alone is left out as a whole.
        "sampled-tokens-left-out-of-loss",
        "cut-completions-against-setting",
    ]
    assert found(replace(same, in_loss=np.ones_like(IN_LOSS))) == ["rollout-padding-in-loss"]


def test_unknown_stops_explain_padding_in_the_loss() -> None:
    """The trainer doesn't know one of two stops, so that it trains the padding behind it: one finding."""
    sampled = ((5, 6, 4), *SAMPLED[1:])
    ids = IDS.copy()
    ids[0, 2] = 4
    mask = IN_LOSS.copy()
    mask[0] = True
    two = step(
        completion_ids=ids, in_loss=mask, sampled_ids=sampled, settings=replace(SETTINGS, sampler_stops=(STOP, 4))
    )  # fmt: skip
    (finding,) = truetune.audit_rollout(two).findings
    assert finding.rule == "stops-unknown-to-trainer"
    assert any("rollout-padding-in-loss" in line for line in finding.evidence)


def test_large_rewards_of_a_small_spread_are_compared_within_rounding() -> None:
    """float32, in which trainers compute, has seven digits."""
    rewards = np.array([[1000.001], [1000.0], [1000.0], [1000.002]], np.float32)
    grouped = rewards.reshape(2, 2)
    rounded = (grouped - grouped.mean(1, keepdims=True)) / (
        grouped.std(1, ddof=1, keepdims=True) + 1e-4
    )
    values = rounded.ravel() + np.float32(0.05)
    assert found(step(rewards=rewards, advantages=values)) == []
    assert found(step(rewards=rewards, advantages=-values)) == [
        "advantages-are-not-of-their-rewards"
    ]


def test_a_column_of_nan_is_its_own() -> None:
    columns = {"score": [float("nan")] * 4}
    call = RewardCall("match", (1.0, 0.0, 3.0, 1.0), {"score": [float("nan")] * 4})
    assert found(step(columns=columns, reward_calls=(call,))) == []


def test_a_kl_term_that_is_rounding_alone_is_no_other_loss() -> None:
    """No advantage, and a reference that is the policy: what is left of the loss is rounding."""
    noise = np.random.default_rng(0).normal(0, 1e-7, IDS.shape)
    rest = one_pass(
        advantages=np.zeros(4),
        reference_logps=np.full(IDS.shape, -1.0) + noise,
        logp_gradient=noise * 1e-2,
    )
    flat = step(
        passes=(rest,), settings=replace(SETTINGS, beta=0.04), rewards=None, advantages=np.zeros(4)
    )
    assert found(flat) == []


def test_the_text_of_tools_may_not_be_in_the_loss() -> None:
    tools = np.zeros_like(IN_LOSS)
    tools[2, 1:3] = True
    assert found(step(from_tools=tools)) == ["rollout-padding-in-loss"]
    assert found(step(from_tools=tools, in_loss=IN_LOSS & ~tools)) == []


def test_turns_before_a_tool_may_not_be_left_out_of_the_loss() -> None:
    """The model calls (5 6 STOP), the tool answers (7 7), the model ends (4 STOP)."""
    ids = np.array([[5, 6, STOP, 7, 7, 4, STOP, PAD]] * 4)
    tools = np.zeros_like(ids, bool)
    tools[:, 3:5] = True
    own = ~tools & (np.arange(8) < 7)
    last_turn = own & (np.arange(8) > 4)
    turns, whole = (5, 6, STOP, 4, STOP), (5, 6, STOP, 7, 7, 4, STOP)
    agent = step(completion_ids=ids, from_tools=tools, in_loss=own, sampled_ids=(turns,) * 4)
    for sampled in (turns, whole):
        assert found(replace(agent, sampled_ids=(sampled,) * 4)) == []
        of_last = replace(agent, sampled_ids=(sampled,) * 4, in_loss=last_turn)
        (finding,) = truetune.audit_rollout(of_last).findings
        assert finding.rule == "sampled-tokens-left-out-of-loss"
        assert finding.message.startswith("12 of 20 sampled tokens are not in the loss, 4 of them")
    # The suffix that a template writes between turns is no token of the sampler, and of no tool.
    other = replace(agent, from_tools=tools & (np.arange(8) > 3), in_loss=last_turn)
    assert found(other) == []
    assert "sampled-tokens-left-out-of-loss" in not_judged(other)


@pytest.mark.parametrize("shall_mask", [True, False])
def test_cut_completions_are_held_to_the_setting(shall_mask: bool) -> None:
    settings = replace(SETTINGS, mask_truncated_completions=shall_mask)
    masked = IN_LOSS.copy()
    masked[2] = False
    for mask, is_masked in ((IN_LOSS, False), (masked, True)):
        expected = [] if is_masked == shall_mask else ["cut-completions-against-setting"]
        assert found(step(settings=settings, in_loss=mask)) == expected


def test_a_group_that_begins_in_another_process_is_left_out() -> None:
    rewards = np.concatenate([REWARDS, REWARDS])
    own = step(rewards=rewards, first_row=3, prompt_ids=PROMPTS[[0, 1, 1, 2]], prompt_mask=PROMPTS[[0, 1, 1, 2]] != PAD,
               advantages=np.concatenate([ADVANTAGES, ADVANTAGES])[3:7])  # fmt: skip
    # Rows 3 to 6 of eight: row 3 ends a group, 4 and 5 are one, 6 begins one.
    assert found(own) == []
    other = replace(own, prompt_ids=PROMPTS[[0, 1, 2, 2]], prompt_mask=PROMPTS[[0, 1, 2, 2]] != PAD)
    assert found(other) == ["group-holds-several-prompts"]


def test_one_reward_for_all_is_found_in_two_groups_at_least() -> None:
    flat, none = np.ones_like(REWARDS), np.zeros(4)
    assert found(step(rewards=flat, advantages=none)) == ["groups-without-reward-spread"]
    one = step(
        rewards=flat[:2], advantages=none[:2], completion_ids=IDS[:2], in_loss=IN_LOSS[:2], sampled_ids=SAMPLED[:2],
        prompt_ids=PROMPTS[:2], prompt_mask=PROMPTS[:2] != PAD,
    )  # fmt: skip
    assert found(one) == []
    assert "groups-without-reward-spread" in not_judged(one)


def test_a_function_that_returns_nan_is_told_from_one_that_returns_none() -> None:
    rewards = np.array([[1.0, np.nan], [0.0, np.nan], [3.0, 1.0], [1.0, 0.0]])
    settings = replace(SETTINGS, reward_weights=(1.0, 0.0))
    for value, expected in ((None, []), (float("nan"), ["reward-function-scores-nothing"])):
        call = RewardCall("style", (value, value, 1.0, 0.0), {})
        two = step(
            rewards=rewards,
            reward_names=("length", "style"),
            settings=settings,
            reward_calls=(call,),
        )
        assert found(two) == expected


def test_an_infinite_reward_is_found() -> None:
    rewards = np.array([[1.0], [0.0], [np.inf], [1.0]])
    assert "reward-function-scores-nothing" in found(step(rewards=rewards))


def test_columns_of_other_rows_are_found_by_their_values() -> None:
    columns = {"answer": ["1", "1", "2", "2"]}
    right, wrong = (
        RewardCall("match", (1.0, 0.0, 3.0, 1.0), {"answer": list(values)})
        for values in ("1122", "2211")
    )
    assert found(step(columns=columns, reward_calls=(right,))) == []
    assert found(step(columns=columns, reward_calls=(wrong,))) == ["reward-reads-other-rows"]
    # A column that the rows don't have is the trainer's own.
    assert found(step(columns={}, reward_calls=(wrong,))) == []


def one_pass(**changes: Any) -> LossPass:
    fields: dict[str, Any] = {
        "completion_ids": IDS,
        "in_loss": IN_LOSS,
        "advantages": ADVANTAGES,
        "logps": np.full(IDS.shape, -1.0),
    }
    return LossPass(**{**fields, **changes})


@pytest.mark.parametrize(
    ("shift", "precision", "expected"),
    [
        (0.0, "float32", []),
        (0.01, "float32", ["first-ratio-is-not-one"]),
        (0.01, "bfloat16", []),
        (0.1, "bfloat16", ["first-ratio-is-not-one"]),
    ],
)
def test_the_first_ratio_has_a_tolerance_by_type(
    shift: float, precision: str, expected: list[str]
) -> None:
    settings = replace(SETTINGS, precision=precision)
    moved = one_pass(old_logps=np.full(IDS.shape, -1.0 - shift))
    assert found(step(settings=settings, passes=(moved,))) == expected
    # After a step of the optimizer a ratio may be anything.
    later = replace(moved, optimizer_step=1)
    assert found(step(settings=settings, passes=(later,))) == []


def test_a_reference_is_judged_before_the_first_step_alone() -> None:
    other = one_pass(reference_logps=np.full(IDS.shape, -1.5))
    assert found(step(passes=(other,))) == ["rollout-reference-is-not-the-start"]
    assert found(step(passes=(replace(other, optimizer_step=1),))) == []
    continued = step(passes=(replace(other, optimizer_step=7),), optimizer_step=7, steps_at_start=7)
    assert found(continued) == []
    assert "rollout-reference-is-not-the-start" in not_judged(continued)


def test_a_sampler_that_cannot_score_a_token_is_asked_about_the_others() -> None:
    logps = np.full(IDS.shape, -1.0)
    logps[0, 0] = np.nan
    assert found(step(passes=(one_pass(sampler_logps=logps),))) == []
    assert found(step(passes=(one_pass(sampler_logps=logps + 0.2),))) == [
        "sampler-differs-from-trainer"
    ]


def test_arrays_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"in_loss has the shape \(4, 3\); expected \(4, 4\)"):
        step(in_loss=IN_LOSS[:, :3])


def test_rewards_and_advantages_of_another_process_are_found() -> None:
    """Two processes with two groups each; the second one's own rows are the last four."""
    other = REWARDS[::-1] + 2
    both = np.concatenate([other, REWARDS])
    own = tuple(float(one) for one in REWARDS[:, 0])
    call = RewardCall("match", own, {})
    right = step(
        rewards=both,
        first_row=4,
        rank=1,
        reward_calls=(call,),
        reward_names=("match",),
        settings=replace(SETTINGS, processes=2),
    )
    assert found(right) == []
    # Gathered in another order: the advantages are right for the rewards, and these for other completions.
    moved = np.concatenate([REWARDS, other])
    crossed = replace(right, rewards=moved, advantages=advantages_of(other))
    (finding,) = truetune.audit_rollout([crossed]).findings
    assert finding.rule == "advantages-are-not-of-their-rewards"
    assert "those of another process's completions" in finding.message
    # Right rewards, and the advantages of the first process.
    sliced = replace(right, advantages=advantages_of(other))
    assert found(sliced) == ["advantages-are-not-of-their-rewards"]
    # Shaped rewards are at no other place, and no fault.
    shaped = replace(right, rewards=both * 2, advantages=ADVANTAGES)
    assert found(shaped) == []


def advantages_of(rewards: Any) -> Any:
    """Of groups of two."""
    groups = rewards.reshape(-1, 2)
    spread = groups.std(1, ddof=1, keepdims=True) + 1e-4
    return ((groups - groups.mean(1, keepdims=True)) / spread).ravel()
