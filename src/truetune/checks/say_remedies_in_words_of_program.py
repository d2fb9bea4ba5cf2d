"""Says the remedies of a log's findings with the settings' names of the program that wrote the log.

Rules on logs name settings as TRL does. Whoever trains with verl looks for `max_completion_length` in vain: there it is
`data.max_response_length`. The names come from the table that rules on settings use, and from a second one of what
is no matter of trainings by rewards alone. Names without an underscore are left as they are (`temperature`, `top_p`):
each program has a setting that ends in them. The trade-off: what a program has no setting for keeps TRL's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from truetune.checks.config.evidence.settings_of_reward_training import KEYS
from truetune.checks.findings import Finding
from truetune.logs.run_log import RunLog
from truetune.settings.stacks.read_nested_rl_settings import ACTOR

# The files of settings that the programs ship: verl 0.8, OpenRLHF 0.11, NeMo RL 0.5, prime-rl (August 2026).
FURTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    "verl": {
        "learning_rate": f"{ACTOR}.optim.lr",
        "warmup_steps": f"{ACTOR}.optim.lr_warmup_steps",
        "max_grad_norm": f"{ACTOR}.grad_clip",
        "num_iterations": f"{ACTOR}.ppo_epochs",
        "loss_type: dapo or dr_grpo": f"{ACTOR}.loss_agg_mode: token-mean",
        "vllm_importance_sampling_mode to token_truncate": "algorithm.rollout_correction.rollout_is to token",
        " (response_length in PPO)": "",
        "num_iterations: 1": f"{ACTOR}.ppo_epochs: 1",
    },
    "openrlhf": {
        "learning_rate": "actor_learning_rate",
        "max_grad_norm": "max_norm",
        "num_iterations": "max_epochs",
        " (response_length in PPO)": "",
    },
    "nemo-rl": {
        "learning_rate": "policy.optimizer.kwargs.lr",
        "max_grad_norm": "policy.max_grad_norm",
        "loss_type: dapo or dr_grpo": "loss_fn.token_level_loss: true",
        " (response_length in PPO)": "",
    },
    "prime-rl": {
        "learning_rate": "trainer.optim.lr",
        "max_grad_norm": "trainer.optim.max_norm",
        " (response_length in PPO)": "",
    },
}
"""Program -> what TRL calls a setting, or a phrase about it -> what the program calls it"""


def say_remedies_in_words_of_program(
    findings: tuple[Finding, ...], log: RunLog
) -> tuple[Finding, ...]:
    """The findings on a log, with remedies that name settings as the log's program does.

    Args:
        findings: of rules on logs.
        log: tells its program by the names of its quantities; of TRL's own nothing is changed.
    """
    if log.kind != "reinforcement" or log.program not in FURTHER_NAMES:
        return findings
    return tuple(
        replace(finding, remedy=in_words_of_program(finding.remedy, log.program))
        for finding in findings
    )


def in_words_of_program(text: str, program: str) -> str:
    """A text with TRL's names of settings replaced by those of another program."""
    names = _names_in_program(program)
    return re.sub(_pattern_of_names(program), lambda match: names[match[0]], text)


@cache
def _pattern_of_names(program: str) -> str:
    """A pattern of all names and phrases; longer ones first, since they hold others."""
    names = sorted(_names_in_program(program), key=len, reverse=True)
    ends = (
        rf"(?<![\w./]){re.escape(name)}(?![\w/])" if name.strip() == name else re.escape(name)
        for name in names
    )
    return "|".join(ends)


@cache
def _names_in_program(program: str) -> Mapping[str, str]:
    """TRL's name -> the program's, of what both have."""
    theirs = KEYS.get(program, {})
    shared = {
        known.key: theirs[name].key
        for name, known in KEYS["trl"].items()
        if name in theirs
        and ("_" in known.key or known.key == "beta")
        and name != "loss denominator"
    }
    return {**shared, **FURTHER_NAMES[program]}
