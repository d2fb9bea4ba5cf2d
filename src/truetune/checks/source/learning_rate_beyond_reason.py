"""An optimizer gets a learning rate at which a pretrained model falls apart, or does not change.

## What it does
Looks for an optimizer of PyTorch, bitsandbytes or transformers that divides by the size of the gradient (Adam, AdamW,
NAdam, RAdam, Lion, ...) over the parameters of a pretrained language model, with a learning rate of 0.1 or more, or of
1e-8 or less. Plain SGD without momentum is reported below 1e-4, because its step is the learning rate times the
gradient. The default of an option counts as its value. Prompt tuning needs high learning rates: there it is a warning
below 1e-4, unless a network computes the prefix. Optimizers of other models are not reported.

## Why it is bad
Adam moves each weight by about the learning rate at each step. Weights of language models are about 0.02. One step of
0.1 replaces them by noise: the loss jumps up and stays there. A thousand steps of 1e-8 move them by less than bfloat16
can represent. SGD does not normalise: a gradient of norm 1 moves all weights together by the learning rate, so a value
meant for AdamW leaves the loss unchanged.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2.0)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
```

## Fix safety
There is no automatic fix. Usual values are 1e-6 to 5e-5 for all weights, and 1e-5 to 1e-3 for LoRA.

## References
- https://arxiv.org/abs/1412.6980 (the step is bounded by the learning rate)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.hyperparameter_limits import MIN_SGD_RATE
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import (
    GivenOption,
    option_value_from_commands_by_attribute,
)
from truetune.source.parsed_source_file import Module

ADAM_NAMES = (
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "AMSGrad",
    "Lion",
    "AdamW8bit",
    "PagedAdamW",
    "PagedAdamW8bit",
    "Adam8bit",
    "AdamW32bit",
)
ADAM_OPTIMIZERS = tuple(
    f"{home}.{name}"
    for home in ("torch.optim", "bitsandbytes.optim", "transformers")
    for name in ADAM_NAMES
)
SGD_OPTIMIZERS = ("torch.optim.SGD",)
MIN_ADAM_RATE = 1e-8
"""A thousand steps move a weight by 1e-5 at most, a bfloat16 weight of 0.02 by none; 1e-7 is the lowest in use"""
MIN_PROMPT_RATE = 1e-4
"""A thirtieth of the lowest in PEFT's examples (3e-3); the vectors of a soft prompt are of size 1, weights of 0.02"""
MAX_RATE = 0.1
"""Weights of published models have a standard deviation of 0.01 to 0.1; prompt tuning is done at up to 0.3"""
# Soft prompts start at random and are trained with rates at which weights fall apart.
PROMPT_TUNING = ("PromptTuning", "PrefixTuning", "PromptEncoder", "soft_prompt", "prompt_embed")


def _model_optimizers(module: Module) -> Iterator[Call]:
    """Optimizers over the parameters of a model of transformers."""
    for call in module.calls(*ADAM_OPTIMIZERS, *SGD_OPTIMIZERS):
        params = call.argument(0, "params")
        if params is not None and _are_parameters_of_loaded_model(module, params):
            yield call


def _model_optimizers_and_soft_prompts(module: Module) -> Iterator[object]:
    """The optimizers over a model's parameters, and the settings of soft prompts: what the rule
    judges a rate of.
    """
    yield from _model_optimizers(module)
    yield from _soft_prompt_settings(module)


class LearningRateBeyondReason(SourceRule):
    code = "SRC069"
    fault = Fault.LEARNING_RATE_TOO_HIGH_OR_LOW
    symptoms = ("loss-does-not-fall", "dpo-without-effect")
    severity = "error"
    looks_at = CodePlaces(
        "optimizers over a language model, and soft prompts", _model_optimizers_and_soft_prompts
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(word in module.text for word in PROMPT_TUNING):
            yield from self._findings_on_soft_prompts()
            return
        for call in _model_optimizers(module):
            rate, cases = call.argument(1, "lr"), [case_of_node(module, call.node)]
            given_option = _rate_of_command(module, rate)
            rates = possible_numbers(module, rate)
            if given_option is not None and isinstance(given_option.value, int | float):
                rates = [float(given_option.value)]
                cases.append(
                    Case(
                        f"{rates[0]:g} on the command line",
                        file=given_option.file,
                        line=given_option.line,
                    )
                )
            fault = _effect_of_rate_in_words(call, rates[0]) if len(rates) == 1 else None
            if fault is not None:
                yield self.finding(
                    f"the learning rate is {rates[0]:g}: {fault}",
                    "set lr=2e-5 for all weights, or lr=2e-4 for an adapter"
                    + (", with AdamW instead of SGD" if call.named(*SGD_OPTIMIZERS) else ""),
                    cases=cases,
                )

    def _findings_on_soft_prompts(self) -> Iterator[Finding]:
        """Findings on rates at which the vectors of a soft prompt, which begin at random, stay
        where they are.
        """
        module = self.subject
        made = next(iter(_soft_prompt_settings(module)), None)
        if made is None or any(module.calls("peft.Lora*Config")):
            return
        for call, rate in _calls_and_learning_rates_given(module):
            rates = possible_numbers(module, rate)
            if len(rates) == 1 and 0 < rates[0] < MIN_PROMPT_RATE:
                yield self.finding(
                    f"the learning rate is {rates[0]:g}, which suits weights, but a soft prompt is trained: its vectors"
                    " hardly change, and neither does the loss",
                    "set learning_rate=3e-2 for prompt tuning (1e-2 for a prefix), and train for more steps",
                    severity="warning",
                    evidence=(
                        "published values are 0.3 (Lester et al., with Adafactor); PEFT's examples use 3e-2 and 1e-2",
                    ),
                    cases=[case_of_node(module, call.node), case_of_node(module, made.node)],
                )


def _rate_of_command(module: Module, rate: ast.expr | None) -> GivenOption | None:
    """What the command beside the script gives for the option that a rate is; it overrules the option's default."""
    nodes = (
        [rate, *(origin.node for origin in module.flow.origins(rate))] if rate is not None else []
    )
    given_options = (
        option_value_from_commands_by_attribute(module.home(node), node)
        for node in nodes
        if isinstance(node, ast.expr)
    )
    return next((one for one in given_options if one is not None), None)


def _soft_prompt_settings(module: Module) -> Iterator[Call]:
    """Settings of a prompt or a prefix that is learned directly; a prefix behind a network takes low rates."""
    for call in module.calls("peft.PromptTuningConfig", "peft.PrefixTuningConfig"):
        projected = call.keywords.get("prefix_projection")
        if not call.open and (projected is None or module.flow.value(projected) is False):
            yield call


def _calls_and_learning_rates_given(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The learning rates that trainers' arguments and optimizers are given."""
    for call in module.calls("transformers.*TrainingArguments", "trl.*Config"):
        if "learning_rate" in call.keywords:
            yield call, call.keywords["learning_rate"]
    for call in module.calls(*ADAM_OPTIMIZERS):
        rate = call.argument(1, "lr")
        if rate is not None:
            yield call, rate


def _effect_of_rate_in_words(call: Call, rate: float) -> str | None:
    """What such a rate does; None where it is one that is in use."""
    if call.named(*SGD_OPTIMIZERS):
        if 0 < rate < MIN_SGD_RATE and "momentum" not in call.keywords:
            return "SGD moves all weights together by that times the gradient's norm, and the loss hardly changes"
        return None
    if rate >= MAX_RATE:
        return "each step moves every weight by about that much, and weights of a language model are about 0.02"
    if 0 < rate <= MIN_ADAM_RATE:
        return "no weight moves by more than about that in a step, so nothing is learned"
    return None


def _are_parameters_of_loaded_model(module: Module, params: ast.expr) -> bool:
    """Are these the parameters of a model that was loaded, as such, filtered or in a list of groups?"""
    nodes = [params, *(origin.node for origin in module.flow.origins(params))]
    for node in (part for whole in nodes for part in ast.walk(whole)):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            made = (origin.node for origin in module.flow.origins(node.value))
            if "model" in module.flow.types(node.value) and not any(
                _model_has_random_weights(module, one) for one in made
            ):
                return True
    return False


def _model_has_random_weights(module: Module, node: ast.AST) -> bool:
    """Does the model have random weights, which can take larger steps at first?"""
    return isinstance(node, ast.Call) and module.flow.call(node).named(
        "*.from_config", "transformers.*For*LM"
    )
