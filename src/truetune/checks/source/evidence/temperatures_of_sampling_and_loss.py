"""Finds policy losses over log-probabilities at temperature 1 of answers that were sampled at another.

How it works: the temperature of the file's generations is known, and one for all of them. The loss is followed back to
`log_softmax` and the like, and to the logits in it. Any division or product of logits in the file, and any use of the
temperature outside of sampling, counts as the scaling that belongs there.

The trade-off: log-probabilities that another file computes are not seen, and nothing is said of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.policy_training_loops import has_own_policy_loss
from truetune.checks.source.evidence.wrong_signs_of_policy_losses import backward_losses
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SAMPLERS = ("SamplingParams", "GenerationConfig")
GENERATING_METHODS = ("generate",)
LOG_SOFTMAXES = ("log_softmax", "logsumexp", "selective_log_softmax", "Categorical", "LogSoftmax")
SCALINGS = ("div", "div_", "mul", "mul_", "true_divide")
SCALING_WORDS = ("TemperatureLogitsWarper", "output_scores", "output_logits")
NEAR_ONE = 0.1
"""TRL's GRPO sampled at 0.9 by default and did not divide the logits before huggingface/trl#3029, and trainings with it
learned
"""


class UnscaledLoss(NamedTuple):
    """A loss over log-probabilities at temperature 1, and the sampling at another."""

    log_softmax: ast.Call
    sampling: ast.Call
    temperature: float


def sampling_temperatures(module: Module) -> Iterator[ast.AST]:
    """The generations of files with a policy loss of their own."""
    if has_own_policy_loss(module):
        for call in _samplings(module):
            yield call.node


def unscaled_losses(module: Module) -> Iterator[UnscaledLoss]:
    """The place of a file where log-probabilities lack the temperature of the sampling; at most one."""
    if not has_own_policy_loss(module):
        return
    samplings = list(_samplings(module))
    temperatures = {_temperature(module, call) for call in samplings}
    temperature = temperatures.pop() if len(temperatures) == 1 else None
    if temperature is None or temperature <= 0 or abs(temperature - 1) <= NEAR_ONE + 1e-9:
        return
    if _scales_logits(module) or _uses_temperature_elsewhere(module, samplings):
        return
    place = _log_softmax_of_loss(module)
    if place is not None:
        yield UnscaledLoss(place, samplings[0].node, temperature)


def _samplings(module: Module) -> Iterator[Call]:
    """The calls that sample answers, or say how: each with its own settings."""
    calls = list(module.methods(*GENERATING_METHODS))
    calls += [call for call in module.all_calls if _is_sampler(call)]
    for call in calls:
        is_of_an_engine = call.keywords.keys() & {"sampling_params", "generation_config"}
        is_greedy = module.flow.value(call.keywords.get("do_sample")) is False
        # An engine's `generate(prompts, params)` gets its settings by place.
        has_own = "temperature" in call.keywords or "do_sample" in call.keywords
        if not is_of_an_engine and not is_greedy and (has_own or _is_sampler(call)):
            yield call


def _is_sampler(call: Call) -> bool:
    """Does a call make the settings of an engine's sampling?"""
    return ast.unparse(call.node.func).rpartition(".")[2] in SAMPLERS


def _temperature(module: Module, call: Call) -> float | None:
    """The temperature of a sampling; 1 where none is written, None where it is not known."""
    written = call.keywords.get("temperature")
    if written is None:
        return None if call.open else 1.0
    value = module.flow.value(written)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def _scales_logits(module: Module) -> bool:
    """Are logits divided or multiplied anywhere in the file?"""
    if any(word in module.text for word in SCALING_WORDS):
        return True
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div | ast.Mult) and "logit" in ast.unparse(node.left):
            return True
    for assigned in module.nodes(ast.AugAssign):
        if isinstance(assigned.op, ast.Div | ast.Mult) and "logit" in ast.unparse(assigned.target):
            return True
    return any("logit" in ast.unparse(call.node.func) for call in module.methods(*SCALINGS))


def _reads_temperature(node: ast.Name | ast.Attribute) -> bool:
    """Is a name or attribute read that is named after a temperature?"""
    name = (node.id if isinstance(node, ast.Name) else node.attr).lower()
    return isinstance(node.ctx, ast.Load) and "temp" in name and "template" not in name


def _uses_temperature_elsewhere(module: Module, samplings: list[Call]) -> bool:
    """Is a temperature read outside of the calls that sample: divided by, or given to another function?"""
    inside = {part for call in samplings for part in ast.walk(call.node)}
    reads: list[ast.Name | ast.Attribute] = [
        *module.nodes(ast.Name),
        *module.nodes(ast.Attribute),
    ]
    for node in reads:
        if node not in inside and _reads_temperature(node) and not _is_only_shown(module, node):
            return True
    return any(
        keyword.arg == "temperature" and call.node not in inside
        for call in module.all_calls
        for keyword in call.node.keywords
    )


def _is_only_shown(module: Module, node: ast.AST) -> bool:
    """Is a value only printed or logged?"""
    for around in module.parents(node):
        if isinstance(around, ast.Call):
            name = ast.unparse(around.func)
            if name == "print" or name.rpartition(".")[2] in ("log", "info", "debug", "init"):
                return True
    return False


def _log_softmax_of_loss(module: Module) -> ast.Call | None:
    """The call that makes the log-probabilities of the loss; None where it is not seen."""
    for loss in backward_losses(module):
        for part in backward_slice(module, loss):
            if isinstance(part, ast.Call):
                name = ast.unparse(part.func).rpartition(".")[2]
                if name in LOG_SOFTMAXES and "logit" in ast.unparse(part):
                    return part
    return None
