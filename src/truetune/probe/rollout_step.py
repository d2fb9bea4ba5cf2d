"""RolloutStep: what one process sampled in one generation of a training by rewards, and what its loss made of it.

It is the record that the rules on rollouts read, and every stack can fill it: prompts and completions as ids, what is
in the loss, rewards, advantages, log-probabilities, and the settings that say what they should be.
`truetune.audit_rollout` judges it. `record_rollouts_of_trl_trainer` fills it from TRL's GRPOTrainer and RLOOTrainer.

What a stack doesn't know stays None, and the rules that need it are not judged. The trade-off: a flat record of arrays
that any program can make, and no trace of how they came about: what fails is named by what it did to the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]
ONLINE_DPO = "online DPO"
"""Begins the `loss_type` of a training on the better and the worse of two completions; its kind of loss follows"""
DISTILLATION = "distillation"
"""The `loss_type` of a training that imitates a teacher on its own samples: without rewards and advantages"""


@dataclass(frozen=True)
class RolloutSettings:
    """The settings of a training by rewards that say what its numbers should be."""

    loss_type: str = ""
    """By TRL's names: grpo, bnpo, dr_grpo, dapo, cispo, rloo; `online DPO sigmoid`, `online DPO ipo`; `distillation`;
    empty where it is none of them: no loss is computed"""
    num_generations: int = 1
    """Completions of one prompt; they stand beside each other"""
    scale_rewards: str = "group"
    """What the advantages are divided by: the spread of the rewards in their group, in the batch, or none"""
    baseline: str = "mean"
    """What is subtracted from a reward: the `mean` of its group, or that of the others in it (`leave-one-out`)"""
    reward_weights: tuple[float, ...] = ()
    """Of each reward function; empty: 1 each"""
    beta: float = 0.0
    """Factor of the KL divergence from the reference"""
    is_kl_times_ratio: bool = False
    """Is the KL divergence of a token multiplied by its ratio, as it is an estimate from samples of the old policy?"""
    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    """Upper bound of the ratio where it is not clipped; None: there is none"""
    importance_sampling_level: str = "token"
    """`token` or `sequence`: what a ratio is of"""
    max_completion_length: int = 0
    """Tokens; the constant length of dr_grpo"""
    mask_truncated_completions: bool = False
    """Are completions that were cut left out of the loss?"""
    steps_per_generation: int = 1
    """Micro-batches that one generation is divided into"""
    processes: int = 1
    trainer_stops: tuple[int, ...] = ()
    """Ids by which the trainer tells that a completion ended; with several, each of them"""
    sampler_stops: tuple[int, ...] = ()
    """Ids at which the sampler ends a completion"""
    pad: int | None = None
    precision: str = "float32"
    """Of the forward passes"""
    unknown_to_loss: tuple[str, ...] = ()
    """Settings that change the loss in a way that is not computed here (`top_entropy_quantile=0.2`)"""
    unknown_to_advantages: tuple[str, ...] = ()
    """Settings that change the advantages in a way that is not computed here"""


@dataclass(frozen=True)
class RewardCall:
    """One call of a reward function."""

    name: str
    values: tuple[float | None, ...]
    """What it returned, one for each completion; None where it did not score it"""
    columns: Mapping[str, Sequence[Any]]
    """Columns of the data that it was given, one value for each completion"""


@dataclass(frozen=True)
class LossPass:
    """One micro-batch as the loss was given it: rows of (completions, tokens)."""

    completion_ids: Ids
    in_loss: NDArray[np.bool_]
    """Tokens that are meant to be in the loss"""
    advantages: Floats
    """(completions,), or one for each token"""
    logps: Floats
    """Log-probabilities of the policy in this pass"""
    old_logps: Floats | None = None
    """Of the policy that sampled, (completions, tokens), or (completions,) sums; None: the loss takes `logps`"""
    reference_logps: Floats | None = None
    sampler_logps: Floats | None = None
    """(completions, tokens) as the sampler gives them"""
    sampler_ratio: Floats | None = None
    """Correction for a sampler other than the policy, by which the loss is multiplied"""
    items: float | None = None
    """Tokens in the loss of the whole generation, of all processes"""
    loss: float | None = None
    """What the loss function returned"""
    logp_gradient: Floats | None = None
    """Gradient of what was differentiated by `logps`: how much each token counts"""
    optimizer_step: int = 0
    """Steps of the optimizer before this pass"""
    accumulated: int = 1
    """Micro-batches of this step of the optimizer"""


@dataclass(frozen=True)
class RolloutStep:
    """One generation of one process: completions of some prompts, their rewards and advantages, and the losses."""

    settings: RolloutSettings
    prompt_ids: Ids
    """(completions, tokens), padded on the left; a prompt stands once for each of its completions"""
    prompt_mask: NDArray[np.bool_]
    """Where `prompt_ids` is no padding"""
    completion_ids: Ids
    """(completions, tokens), padded on the right"""
    in_loss: NDArray[np.bool_]
    """Tokens of the completions that are meant to be in the loss"""
    advantages: Floats
    """(completions,)"""
    rewards: Floats | None = None
    """(completions of all processes, reward functions); NaN where a function gave none"""
    reward_penalty: Floats | None = None
    """(completions of all processes,) what is subtracted from the weighted rewards, as RLOO's KL divergence"""
    reference_log_ratios: Floats | None = None
    """(completions, tokens) log-probability of the policy less that of the reference, both right after sampling; where
    each micro-batch has the reference's own (`LossPass.reference_logps`), None"""
    reward_names: tuple[str, ...] = ()
    first_row: int = 0
    """Which row of `rewards` is the first completion of this process"""
    prompts: tuple[Any, ...] = ()
    """The prompts as the data have them: a text, or a list of messages"""
    template_prompt_ids: tuple[tuple[int, ...], ...] | None = None
    """Of each completion what the chat template makes of the prompt, with the generation prompt; None where a prompt
    is no chat"""
    columns: Mapping[str, Sequence[Any]] | None = None
    """Other columns of the data, one value for each completion"""
    sampled_ids: tuple[tuple[int, ...], ...] | None = None
    """What the sampler gave for each completion, without padding; of several turns their tokens one after the other"""
    sampled_places: tuple[tuple[int, ...], ...] | None = None
    """Where in `completion_ids` each of these tokens stands; None: they stand at its begin, or it is not known where"""
    from_tools: NDArray[np.bool_] | None = None
    """(completions, tokens) tokens that tools or an environment wrote; None: there are none"""
    reward_calls: tuple[RewardCall, ...] = ()
    passes: tuple[LossPass, ...] = ()
    optimizer_step: int = 0
    """Steps of the optimizer before the completions were sampled"""
    steps_at_start: int = 0
    """Steps of the optimizer before this training: more than 0 where it continues another"""
    rank: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where arrays of one thing have different shapes."""
        for name, array, shape in (
            ("prompt_mask", self.prompt_mask, self.prompt_ids.shape),
            ("in_loss", self.in_loss, self.completion_ids.shape),
            ("from_tools", self.from_tools, self.completion_ids.shape),
            ("reference_log_ratios", self.reference_log_ratios, self.completion_ids.shape),
        ):
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape}; expected {shape}")
        if self.reward_penalty is not None and self.rewards is not None:
            expected = self.rewards.shape[:1]
            if self.reward_penalty.shape != expected:
                raise ValueError(
                    f"reward_penalty has the shape {self.reward_penalty.shape}; expected {expected}"
                )

    @property
    def rows(self) -> int:
        """Completions of this process."""
        return int(self.completion_ids.shape[0])

    def sampled_length(self, row: int) -> int | None:
        """Tokens that a completion has in `completion_ids`; None where it is not known.

        By what the sampler gave. Where tools wrote a part of it, the sampler's tokens are not all of it.
        """
        if self.sampled_ids is None or self.from_tools is not None:
            return None
        return len(self.sampled_ids[row])


def write_rollout_files(steps: Sequence[RolloutStep], folder: Path) -> None:
    """Write steps into a folder: arrays as `rollouts.npz`, everything else as `rollouts.json`."""
    arrays: dict[str, NDArray[Any]] = {}
    documents = [
        _without_arrays(step, f"{number}", arrays, ("settings", "reward_calls", "passes"))
        | {
            "settings": asdict(step.settings),
            "reward_calls": [asdict(call) for call in step.reward_calls],
            "passes": [
                _without_arrays(one, f"{number}.{place}", arrays, ())
                for place, one in enumerate(step.passes)
            ],
        }
        for number, step in enumerate(steps)
    ]
    with open(folder / "rollouts.npz", "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    text = json.dumps(documents)
    (folder / "rollouts.json").write_text(text, encoding="utf-8", errors="surrogatepass")


def read_rollout_files(folder: Path) -> tuple[RolloutStep, ...]:
    """Read the steps of a folder; none where it holds none.

    Raises OSError, ValueError, KeyError or TypeError where they are not whole.
    """
    path = folder / "rollouts.json"
    if not path.exists():
        return ()
    documents = parse_json(path.read_text(encoding="utf-8", errors="surrogatepass"), RESULT)
    with np.load(folder / "rollouts.npz", allow_pickle=False) as arrays:
        return tuple(
            _step_of_document(document, f"{number}", arrays)
            for number, document in enumerate(documents)
        )


def _without_arrays(
    record: Any, prefix: str, arrays: dict[str, NDArray[Any]], left_out: Sequence[str]
) -> dict[str, Any]:
    """The fields of a record but its arrays, which are put beside each other, by their place."""
    values: dict[str, Any] = {}
    for part in fields(record):
        value = getattr(record, part.name)
        if isinstance(value, np.ndarray):
            arrays[f"{prefix}/{part.name}"] = value
        elif part.name not in left_out:
            values[part.name] = value
    return values


def _arrays_of(prefix: str, arrays: Any) -> dict[str, NDArray[Any]]:
    """The arrays of one record, by the names of its fields."""
    begin = f"{prefix}/"
    return {
        name.removeprefix(begin): arrays[name] for name in arrays.files if name.startswith(begin)
    }


def _step_of_document(document: dict[str, Any], prefix: str, arrays: Any) -> RolloutStep:
    """A step as it was written."""
    passes = tuple(
        LossPass(**{**one, **_arrays_of(f"{prefix}.{place}", arrays)})
        for place, one in enumerate(document.pop("passes"))
    )
    calls = tuple(
        replace(RewardCall(**call), values=tuple(call["values"]))
        for call in document.pop("reward_calls")
    )
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in document.pop("settings").items()
    }
    sampled = document.pop("sampled_ids")
    places = document.pop("sampled_places")
    by_template = document.pop("template_prompt_ids")
    for name in ("prompts", "reward_names"):
        document[name] = tuple(document[name])
    return RolloutStep(
        **{**document, **_arrays_of(prefix, arrays)},
        settings=RolloutSettings(**settings),
        sampled_ids=_rows_of_ids(sampled),
        sampled_places=_rows_of_ids(places),
        template_prompt_ids=_rows_of_ids(by_template),
        reward_calls=calls,
        passes=passes,
    )


def _rows_of_ids(rows: Any) -> tuple[tuple[int, ...], ...] | None:
    """Rows of ids as they were written."""
    return None if rows is None else tuple(tuple(row) for row in rows)
