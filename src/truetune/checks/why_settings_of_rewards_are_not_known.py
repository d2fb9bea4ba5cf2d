"""Tells why the settings of a training by rewards can't be judged in full: what in them stays unknown.

All of verl, OpenRLHF, NeMo RL, prime-rl, ms-swift and TRL set such a training by names that rules know: rates, groups,
limits, clip ranges, estimators. A file whose values are all there is judged by them. One of variables, of keys of
another program, or of an estimator or loss that the user registered is not: no rule knows what they do. Reward
functions and rollouts are no settings; `truetune reward` and `truetune run` judge them. The trade-off: a name of an
algorithm that a release adds is unknown here until it is in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    value_at_dotted_key,
)
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import holds_unknown_value

ACTOR = "actor_rollout_ref.actor"
TRL_LOSSES = frozenset(("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"))
KNOWN_ALGORITHMS: Mapping[str, Mapping[str, frozenset[str]]] = {
    # The enumeration AdvantageEstimator and the registry of policy losses in verl/trainer/ppo/core_algos.py.
    "verl": {
        "algorithm.adv_estimator": frozenset((
            "gae", "grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "opo", "grpo_passk",
            "gpg", "rloo_vectorized", "grpo_vectorized", "optimal_token_baseline", "tir_optimal_token_baseline", "gdpo",
        )),
        f"{ACTOR}.policy_loss.loss_mode": frozenset((
            "vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo",
            "bypass_mode",
        )),
    },
    "openrlhf": {
        "advantage_estimator": frozenset(
            ("gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo")
        ),
        "policy_loss_type": frozenset(("ppo", "gspo")),
    },
    "nemo-rl": {
        "grpo.adv_estimator.name": frozenset(("grpo", "reinforce_plus_plus", "gdpo", "opd")),
    },
    # Of prime-rl's union of losses `custom` imports a function of the user's.
    "prime-rl": {"trainer.loss.type": frozenset(("default",))},
    "trl": {"loss_type": TRL_LOSSES},
    "ms-swift": {"loss_type": TRL_LOSSES},
    "truetune": {"training.loss_type": TRL_LOSSES},
}  # fmt: skip
"""Stack -> the settings that name its algorithm, and the names whose meaning rules know"""
NAMES_A_PLACE = re.compile(
    r"path|file|dir|folder|name|model|tokenizer|data|project|experiment|logger|addr|port|host|node|url|cache|env"
)
"""Keys of what lies where and is called what: no rule on the algorithm reads them"""
VARIABLE = re.compile(r"\$\{?[A-Za-z_]|\?\?\?|\{\{")
"""A shell's or Hydra's variable, a value that Hydra demands (`???`), a blank of Jinja"""
MAX_NAMED = 3
"""Settings that a reason names"""


def why_settings_of_rewards_are_not_known(config: Config) -> str:
    """Why not all of the settings of a training by rewards could be judged; empty where they were.

    Args:
        config: of a training by rewards.
    """
    if is_config_of_python_program(config):
        return "a script builds its trainer"
    if config.own_keys:
        return "a program or file of the user's adds settings that are not known here"
    unknown = list(_settings_of_unknown_value(config.raw, ""))
    if unknown:
        more = f" and {len(unknown) - MAX_NAMED} more" if len(unknown) > MAX_NAMED else ""
        return f"the value of {', '.join(unknown[:MAX_NAMED])}{more} is not known"
    for key, known in KNOWN_ALGORITHMS.get(config.stack, {}).items():
        value = value_at_dotted_key(config.raw, key)
        if value is not None and str(value).lower() not in known:
            return f"no rule knows what {key} {value} does"
    return (
        ""
        if config.stack in KNOWN_ALGORITHMS
        else f"no rule knows the algorithms of {config.stack}"
    )


def _settings_of_unknown_value(values: Mapping[Any, Any], table: str) -> Iterator[str]:
    """The dotted names of the settings, within tables too, that a variable gives its value."""
    for key, value in values.items():
        name = f"{table}{key}"
        if isinstance(value, Mapping):
            yield from _settings_of_unknown_value(value, f"{name}.")
        elif NAMES_A_PLACE.search(str(key).lower()):
            continue
        elif holds_unknown_value(value) or (isinstance(value, str) and VARIABLE.search(value)):
            yield name
