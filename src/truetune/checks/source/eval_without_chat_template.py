"""A chat model is evaluated without its chat template.

## What it does
Looks for `lm_eval.simple_evaluate` with a model whose name contains chat or instruct, and no
`apply_chat_template=True`. The model is named by `model_args`, or by the model object (`HFLM(pretrained=...)`), also
through a function or a dictionary of settings.

## Why it is bad
The harness writes plain prompts by default. A tuned chat model then loses several points, and the base seems better.

## Example
```python
import lm_eval

lm_eval.simple_evaluate(model="hf", model_args="pretrained=out/llama-3.1-8b-instruct-tuned", tasks=["gsm8k"])
```

## Use instead
```python
import lm_eval

lm_eval.simple_evaluate(
    model="hf",
    model_args="pretrained=out/llama-3.1-8b-instruct-tuned",
    tasks=["gsm8k"],
    apply_chat_template=True,
    fewshot_as_multiturn=True,
)
```

## Fix safety
The scores change, and can't be compared with those measured without the template.

## References
- EleutherAI/lm-evaluation-harness#1841, EleutherAI/lm-evaluation-harness#2883
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding, Fix
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constants_among_options
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Result, options_of_choice

CHAT_MODEL_NAME = re.compile(r"instruct|[-_/]chat|[-_]it\b", re.I)
HARNESS_CALLS = ("lm_eval.simple_evaluate", "lm_eval.evaluator.simple_evaluate")
MODEL_OBJECTS = ("lm_eval.models.*", "lm_eval.api.*")


class EvalWithoutChatTemplate(SourceRule):
    code = "SRC065"
    fault = Fault.CHAT_MODEL_ASKED_WITHOUT_TEMPLATE
    severity = "warning"
    since = "0.1.0"
    looks_at = places_of_calls("calls of simple_evaluate", *HARNESS_CALLS)

    def findings(self) -> Iterator[Finding]:
        """Findings on chat models that are evaluated without their chat template."""
        module = self.subject
        calls = {call.node: call for call in module.calls(*HARNESS_CALLS)}
        for node in dict.fromkeys(_chat_evaluations_without_template(module)):
            yield self.finding(
                "a chat model is evaluated without its chat template: its scores are too low",
                "set apply_chat_template=True (and fewshot_as_multiturn=True if num_fewshot is set)",
                cases=[case_of_node(module, node)],
                fix=_fix_adding_template_switch(module, calls[node]) if node in calls else None,
            )


def _fix_adding_template_switch(module: Module, call: Call) -> Fix | None:
    """The fix that adds the switch to the call."""
    return fix_of_changes(
        module, set_keyword(module, call, "apply_chat_template", "True"), safe=False
    )


def _chat_evaluations_without_template(module: Module) -> Iterator[ast.AST]:
    """The evaluations of chat models that lack the template."""
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.calls(*HARNESS_CALLS):
            if call.home.path == module.path and call.lacks("apply_chat_template"):
                if any(CHAT_MODEL_NAME.search(name) for name in _names_of_asked_models(call)):
                    yield call.node


def _names_of_asked_models(call: CallEvent) -> Iterator[str]:
    """The names of the models that an evaluation may ask."""
    for given in constants_among_options(call.argument(1, "model_args")):
        named = given.get("pretrained") if isinstance(given, dict) else given
        if isinstance(named, str):
            yield named
    model = call.argument(0, "model")
    for value in options_of_choice(model) if model is not None else ():
        if isinstance(value, Result) and value.call.named(*MODEL_OBJECTS):
            names = constants_among_options(value.call.argument(0, "pretrained"))
            yield from (name for name in names if isinstance(name, str))
