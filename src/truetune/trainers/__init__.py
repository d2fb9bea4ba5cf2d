"""Trainers: what each trainer does with rows, as recorded facts, one module per trainer and release.

A check judges rows, and what a row teaches depends on who reads it: the same pad token spoils one trainer's labels and
means nothing to another's. Each fact names the place in that release where it was read, and tests compare it with the
real package where that installs. Rules never ask for a trainer's name, only for its facts
(`checks.severity_by_trainer`).
"""

from __future__ import annotations

from collections.abc import Mapping

from truetune.trainers import (
    axolotl_facts,
    llama_factory_facts,
    torch_loop_facts,
    transformers_facts,
    trl_sft_facts,
    truetune_facts,
    unsloth_facts,
)
from truetune.trainers.trainer_fact_types import TRAINER_NAMES, UNKNOWN, TrainerFacts, TrainerName

__all__ = [
    "TRAINERS",
    "TRAINER_NAMES",
    "UNKNOWN",
    "TrainerFacts",
    "TrainerName",
    "facts_of_trainer",
]

# By name, in the order in which reports list them; a new trainer is one module and one line here.
TRAINERS: Mapping[TrainerName, TrainerFacts] = {
    facts.name: facts
    for facts in (
        trl_sft_facts.FACTS,
        transformers_facts.FACTS,
        axolotl_facts.FACTS,
        llama_factory_facts.FACTS,
        unsloth_facts.FACTS,
        truetune_facts.FACTS,
        torch_loop_facts.FACTS,
    )
    if facts.name is not None
}


def facts_of_trainer(name: TrainerName | None) -> TrainerFacts:
    """The facts of a trainer; those of no trainer in particular where it is not known."""
    # Not a KeyError and not a guess: rules then name both cases.
    return UNKNOWN if name is None else TRAINERS[name]
