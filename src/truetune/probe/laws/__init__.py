"""Laws that a correct trainer obeys, measured on the model of the run.

A law is one module with `measure_law(trial) -> Measured` and `COST`: `quick` (a few forward and backward passes on the
real model, which is as before afterwards) or `whole` (it changes weights, writes files or starts processes, and so is
given a copy or a miniature). `truetune.checks.law` judges what they measured; `truetune.probe.measuring` holds how they
compute.

Trade-off: a law compares two ways to compute the same in the run itself, instead of reading its settings. That costs
passes of the real model, and needs a tolerance for rounding; but it holds for trainers and settings nobody has listed.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from truetune.probe.measuring.law_input_and_result_types import Trial, Untested

Cost = Literal["quick", "whole"]
# After so long no further quick law is begun. Chosen, not measured: the run waits for them before its first step.
QUICK_LAWS_SECONDS = 120.0
# Modules whose forward pass needs every process: a law runs in the first process alone, and would wait for ever.
COLLECTIVE_MODULES = ("FullyShardedDataParallel", "SyncBatchNorm")
# Laws to begin with, lest the time run out.
FIRST_LAWS = (
    "loss-targets",
    "loss-weights",
    "gradient-flow",
    "loss-alive",
    "dpo-start",
    "precomputed-reference",
    "reference-dropout",
    "packing-isolation",
    "padding-invariance",
    "update-rounding",
    "gradient-accumulation",
)


def law_modules() -> dict[str, Any]:
    """The modules of all laws, by the law's name in kebab-case; those that prove most come first."""
    modules = (
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
    )
    modules_by_name = {
        m.__name__.rpartition(".")[2].replace("_", "-"): m
        for m in modules
        if hasattr(m, "measure_law")
    }
    return {
        name: modules_by_name[name]
        for name in (*FIRST_LAWS, *sorted(modules_by_name.keys() - set(FIRST_LAWS)))
    }


def law_names_of_costs(*costs: Cost) -> tuple[str, ...]:
    """Names of the laws of these costs."""
    return tuple(name for name, law in law_modules().items() if law.COST in costs)


def measure_laws(
    trial: Trial,
    names: Iterable[str],
    seconds: float = QUICK_LAWS_SECONDS,
    keep: Callable[[], None] | None = None,
    outcomes: dict[str, dict[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Each named law's outcome: {value, tolerance, unit, evidence, seconds}, or {untested: why, seconds}; with `failed`
    where the law itself raised.

    Model and trainer are as before after each law. No quick law is begun once `seconds` have passed. The outcomes are
    put into `outcomes`, and `keep` is called after each.
    """
    known, started = law_modules(), time.perf_counter()
    outcomes = {} if outcomes is None else outcomes
    for name in names:
        if known[name].COST == "quick" and time.perf_counter() - started > seconds:
            outcomes[name] = {
                "untested": f"the laws before it took {seconds:.0f} s, the limit",
                "seconds": 0.0,
            }
        else:
            outcomes[name] = _measure_law_catching_errors(known[name], trial)
        if keep is not None:
            keep()
    return outcomes


def _measure_law_catching_errors(law: Any, trial: Trial) -> dict[str, Any]:
    """The outcome of one law, as JSON; what it raises is its outcome, so that the others are still measured."""
    from truetune.probe.measuring.restore_all_but_weights_after_law import restore_afterwards
    from truetune.probe.measuring.trainer_gradients import models_beside

    started = time.perf_counter()
    outcome: dict[str, Any]
    try:
        if are_weights_out_of_reach(trial.model):
            raise Untested(
                "the model computes with other processes (sharded weights), or its weights are not"
                " in memory"
            )
        with restore_afterwards(trial.model, *models_beside(trial), trainer=trial.trainer):
            measured = law.measure_law(trial)
        outcome = {
            name: getattr(measured, name) for name in ("value", "tolerance", "unit", "evidence")
        }
    except Untested as reason:
        outcome = {"untested": str(reason)}
    except torch.cuda.OutOfMemoryError:
        outcome = {"untested": "the device ran out of memory", "failed": True}
    except Exception as error:
        outcome = {
            "untested": f"it raised {type(error).__name__}: {str(error)[:300]}",
            "failed": True,
        }
    # What the law had allocated is given back to the run, which would else lack it.
    if "memory" in outcome.get("untested", "") and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return outcome | {"seconds": round(time.perf_counter() - started, 3)}


def are_weights_out_of_reach(model: torch.nn.Module) -> bool:
    """Are weights sharded over processes (ZeRO-3, FSDP, tensor parallel), not in memory, or does a layer wait for the
    other processes?"""
    return any(type(module).__name__ in COLLECTIVE_MODULES for module in model.modules()) or any(
        p.numel() == 0
        or p.device.type == "meta"
        or hasattr(p, "ds_id")
        or type(p).__name__ == "DTensor"
        for p in model.parameters()
    )
