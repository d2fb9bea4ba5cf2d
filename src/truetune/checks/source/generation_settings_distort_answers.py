"""Answers are generated with settings that distort them or make correct ones impossible.

## What it does
Checks the arguments of `generate`, `GenerationConfig`, pipelines and vLLM's `SamplingParams`: forbidden n-grams,
repetition penalties, temperatures, a minimum length, ignored stop tokens. Penalties are reported from a lower value on
if the file mentions JSON, SQL or the like. Temperatures from 1.5 on, `ignore_eos` and a minimum length close to the
limit are also found in request bodies, `extra_body`, `options` and dictionaries; files that measure speed are not
checked. It reports a stop string that the trained answers contain. Saved replies that all ended at the limit are given
as evidence.

## Why it is bad
A tuned model that has learned a format needs to repeat itself: keys of JSON, names, brackets, words of the prompt.
`no_repeat_ngram_size=4` bans every sequence of four tokens that occurred before, also in the prompt, and
`repetition_penalty=1.3` divides the logit of every earlier token. The model was trained well, but its answers do not
parse.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
inputs = tokenizer("List the parts of order 17:", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=512, do_sample=False, no_repeat_ngram_size=4)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
inputs = tokenizer("List the parts of order 17:", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=512, do_sample=False, repetition_penalty=1.0)
```

## Fix safety
If answers loop without a penalty, the cause is in the training: stop tokens that were not learned, or too many epochs.

## References
- huggingface/transformers: `NoRepeatNGramLogitsProcessor`, `RepetitionPenaltyLogitsProcessor`
- Keskar et al., CTRL (arXiv:1909.05858), section 4.1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.find_server_replies_cut_at_limit import files_with_all_replies_cut
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import GENERATION
from truetune.checks.read_training_chats_nearby import count_answers_cut_by_stop, find_nearby_chats
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.high_temperature_requests import hot_requests
from truetune.checks.source.evidence.hyperparameter_arguments_out_of_range import (
    generation_hyperparameter_calls,
    has_judgeable_number,
    out_of_range_arguments,
)
from truetune.checks.source.evidence.stop_tokens_switched_off import settings_that_prevent_stopping
from truetune.source.parsed_source_file import Module


def _generations_and_options(module: Module) -> Iterator[object]:
    """The calls that generate, and what sets their options."""
    yield from (
        hyperparameter_call
        for hyperparameter_call in generation_hyperparameter_calls(module)
        if has_judgeable_number(hyperparameter_call)
    )
    yield from stop_strings(module)
    yield from settings_that_prevent_stopping(module)
    yield from hot_requests(module)


class StopString(NamedTuple):
    """A string at which a script lets answers end."""

    text: str
    node: ast.AST


def stop_strings(module: Module) -> Iterator[StopString]:
    """The strings at which answers end: `stop=["\
    "]` of a call, and `"stop"` of a request's body or options.
    """
    for stops, place in _stop_string_values_and_setters(module):
        value = module.flow.value(stops)
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str) and text:
                yield StopString(text, place)


def _stop_string_values_and_setters(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What stop strings are set to, and the call or dictionary that sets them."""
    for call in module.all_calls:
        for name in STOP_ARGUMENTS:
            if name in call.keywords:
                yield call.keywords[name], call.node
    for node in module.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in STOP_ARGUMENTS:
                yield value, node


STOP_ARGUMENTS = ("stop", "stop_strings", "stop_sequences")
MIN_SHARE_CUT = 0.1
"""Trained answers that a stop string cuts, from which it is no mark of an end"""


class GenerationSettingsDistortAnswers(SourceRule):
    code = "SRC079"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    severity = "warning"
    moot_where = ("repetition-forbidden-in-structured-answers",)
    looks_at = CodePlaces("calls that set how answers are generated", _generations_and_options)

    def findings(self) -> Iterator[Finding]:
        told = set()
        for hyperparameter_call in generation_hyperparameter_calls(self.subject):
            told |= {*hyperparameter_call.nodes.values(), hyperparameter_call.call.node}
            for out_of_range_argument in out_of_range_arguments(
                self.subject, hyperparameter_call, GENERATION
            ):
                yield self.finding(
                    out_of_range_argument.text,
                    out_of_range_argument.fix,
                    severity=out_of_range_argument.breach.limit.severity,
                    evidence=[out_of_range_argument.breach.limit.source],
                    cases=out_of_range_argument.cases,
                )
        yield from self._findings_on_stop_strings()
        for request in hot_requests(self.subject):
            if request.node not in told:
                yield self.finding(
                    f"temperature is {request.value:g} in a request: unlikely tokens are sampled often, and answers"
                    " turn into noise with words of other languages",
                    "set temperature to 0.7, or to 0 if answers should be the same each time",
                    evidence=["published models use 0.1 to 1.0"],
                    cases=[case_of_node(self.subject, request.node)],
                )
        for switch in settings_that_prevent_stopping(self.subject):
            if switch.node in told:
                continue
            replies = list(files_with_all_replies_cut(Path(self.subject.path).parent))
            yield self.finding(
                switch.text,
                f"remove {switch.name}; it is only for speed benchmarks",
                evidence=[one.text() for one in replies],
                cases=[case_of_node(self.subject, switch.node)],
            )

    def _findings_on_stop_strings(self) -> Iterator[Finding]:
        """Findings on stop strings that stand in the middle of the answers which the model was
        trained on.
        """
        module = self.subject
        stops = list(stop_strings(module))
        chats = find_nearby_chats(module.path) if stops else None
        if chats is None:
            return
        for stop in stops:
            count, total = count_answers_cut_by_stop(chats, stop.text), len(chats.answers)
            if count >= MIN_SHARE_CUT * total:
                yield self.finding(
                    f"answers end at the stop string {stop.text!r}, which {count} of {total} trained answers in"
                    f" {chats.path.name} contain: such answers are cut off there",
                    "remove the stop string, since the model ends with the stop token that it was trained on; or"
                    " use a string"
                    " that no answer contains",
                    cases=[case_of_node(module, stop.node)],
                )
