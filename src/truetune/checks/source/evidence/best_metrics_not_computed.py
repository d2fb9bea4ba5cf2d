"""Finds trainers that pick their best model by a metric which no evaluation gives, by a symbolic
run of the script.

The trade-off: keys count only where all of them are known. A dictionary that a library makes is
known for the metrics of `evaluate` alone, by the name that they are loaded by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.trainer_settings_given import (
    arguments_of_trainer,
    constant_of_setting,
    value_of_setting,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace, is_constant_none
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Class,
    Constant,
    Function,
    Item,
    Mapping,
    Option,
    Partial,
    Result,
    Value,
)

TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
"""TRL's trainers add metrics of their own, which differ by release"""
ALWAYS_GIVEN = frozenset(
    ("loss", "runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "epoch")
)
"""Metrics of each evaluation, without the prefix `eval_`"""
OF_EVALUATE = {
    "accuracy": ("accuracy",),
    "f1": ("f1",),
    "precision": ("precision",),
    "recall": ("recall",),
    "exact_match": ("exact_match",),
    "matthews_correlation": ("matthews_correlation",),
    "rouge": ("rouge1", "rouge2", "rougeL", "rougeLsum"),
    "bleu": ("bleu", "precisions", "brevity_penalty", "length_ratio"),
    "sacrebleu": ("score", "counts", "totals", "precisions", "bp"),
    "meteor": ("meteor",),
    "chrf": ("score", "char_order", "word_order", "beta"),
}
"""Metric of the library evaluate -> the keys that its compute gives"""
ADDING_METHODS = ("update", "setdefault")
OWN_EVALUATION = frozenset(
    ("evaluate", "evaluation_loop", "prediction_loop", "_evaluate", "_determine_best_metric")
)
"""Methods by which a subclass of Trainer may give other metrics"""


@dataclass(frozen=True, slots=True)
class UncomputedMetric:
    """A trainer whose best model is picked by a metric that it does not get."""

    metric: str
    known: frozenset[str]
    """The metrics that it gets"""
    has_function: bool
    """It is given compute_metrics"""
    has_several_sets: bool
    nodes: tuple[ast.AST, ...]
    """The setting, and the trainer"""


def uncomputed_best_metrics(module: Module) -> Iterator[UncomputedMetric]:
    """The trainers of a file that pick the best model by a metric which no evaluation gives, each
    place once.
    """
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            if trainer.home.path != module.path or trainer.node in seen:
                continue
            uncomputed_metric = _uncomputed_metric_of_trainer(trace, trainer)
            if uncomputed_metric is not None:
                seen.add(trainer.node)
                yield uncomputed_metric


def _uncomputed_metric_of_trainer(trace: Trace, trainer: CallEvent) -> UncomputedMetric | None:
    """A trainer whose metric is certainly missing; None for any other."""
    arguments = arguments_of_trainer(trainer)
    if arguments is None or trainer.is_open or _overrides_evaluation(trace, trainer):
        return None
    if constant_of_setting(arguments, "load_best_model_at_end", False) is not True:
        return None
    setting = value_of_setting(arguments, "metric_for_best_model")
    metric = constant_of(setting)
    known = _metrics_of_evaluation(trace, trainer)
    if not isinstance(metric, str) or isinstance(setting, Option) or known is None:
        return None
    name = metric.removeprefix("eval_")
    if name in known or _may_be_metric_of_named_set(name, known, trainer):
        return None
    node = getattr(setting, "node", None)
    has_function = not is_constant_none(trainer.keywords.get("compute_metrics", Constant(None)))
    has_several = isinstance(trainer.keywords.get("eval_dataset"), Mapping)
    nodes = (trainer.node,) if node is None else (node, trainer.node)
    return UncomputedMetric(metric, known, has_function, has_several, nodes)


def _overrides_evaluation(trace: Trace, trainer: CallEvent) -> bool:
    """Is a trainer of a class of the project that changes which metrics an evaluation gives?"""
    made = [one.made_of for one in trace.instances if one.construction is trainer]
    return any(OWN_EVALUATION & _names_defined_by_class(one) for one in made)


def _names_defined_by_class(made_of: Class) -> frozenset[str]:
    """What a class defines, with those of the project that it stands on."""
    names = frozenset(made_of.namespace)
    for base in made_of.bases:
        if isinstance(base, Class):
            names |= _names_defined_by_class(base)
    return names


def _may_be_metric_of_named_set(metric: str, known: frozenset[str], trainer: CallEvent) -> bool:
    """May it be the metric of one of several evaluation sets (`math_loss`), whose names are not
    seen?
    """
    rows = trainer.keywords.get("eval_dataset")
    # An item of a loaded set is one split, and a dictionary of the script has names that are seen.
    if isinstance(rows, Item | Mapping):
        return False
    return any(metric.endswith(f"_{one}") for one in known)


def _metrics_of_evaluation(trace: Trace, trainer: CallEvent) -> frozenset[str] | None:
    """The metrics of an evaluation, without `eval_`; None where not all of them are known."""
    computed = _computed_metrics(trace, trainer)
    if computed is None:
        return None
    metrics = ALWAYS_GIVEN | computed
    rows = trainer.keywords.get("eval_dataset")
    if not isinstance(rows, Mapping):
        return metrics
    if rows.is_open or rows.rest is not None:
        return None
    return frozenset(f"{name}_{metric}" for name in rows.entries for metric in metrics)


def _computed_metrics(trace: Trace, trainer: CallEvent) -> frozenset[str] | None:
    """The keys that compute_metrics returns; none without it, None where they are not known."""
    given = trainer.argument(-1, "compute_metrics")
    if given is None or is_constant_none(given):
        return frozenset()
    while isinstance(given, Partial):
        given = given.function
    if not isinstance(given, Function):
        return None
    for function, returned in trainer.returned_by_callbacks:
        if function.definition is given.definition:
            return _known_keys_of_dictionary(trace, returned)
    return None


def _known_keys_of_dictionary(trace: Trace, value: Value) -> frozenset[str] | None:
    """The keys of a dictionary; None where they are not all known."""
    if isinstance(value, Choice):
        parts = [_known_keys_of_dictionary(trace, one) for one in value.options]
        known = [part for part in parts if part is not None]
        return frozenset().union(*known) if len(known) == len(parts) else None
    if isinstance(value, Mapping):
        inherited = (
            frozenset() if value.rest is None else _known_keys_of_dictionary(trace, value.rest)
        )
        if value.is_open or inherited is None:
            return None
        return inherited | frozenset(key for key in value.entries if isinstance(key, str))
    return _keys_of_evaluate(trace, value)


def _keys_of_evaluate(trace: Trace, value: Value) -> frozenset[str] | None:
    """The keys that a metric of the library evaluate gives; None for any other result."""
    if not isinstance(value, Result) or value.call.method != "compute":
        return None
    metric = value.call.receiver
    if not isinstance(metric, Result) or not metric.call.named("evaluate.load"):
        return None
    keys = OF_EVALUATE.get(str(constant_of(metric.call.argument(0, "path"))))
    if keys is None:
        return None
    added = _keys_added_by_update(trace, value)
    if added is None:
        return None
    # What the script adds by `result["gen_len"] = ...` is kept with the result.
    own = frozenset(key for key in value.entries if isinstance(key, str))
    return frozenset(keys) | own | added


def _keys_added_by_update(trace: Trace, value: Value) -> frozenset[str] | None:
    """The keys that `result.update(...)` adds; None where they are not all known."""
    added: frozenset[str] = frozenset()
    for use in trace.uses(value):
        if not isinstance(use, CallEvent) or use.receiver is not value:
            continue
        if use.method not in ADDING_METHODS:
            continue
        keys = (
            _known_keys_of_dictionary(trace, use.args[0]) if use.args and not use.is_open else None
        )
        if keys is None:
            return None
        added |= keys | frozenset(use.keywords)
    return added
