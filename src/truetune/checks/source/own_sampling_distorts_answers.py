"""A hand-written sampling loop does not sample from the model's distribution.

## What it does
Looks at files that sample tokens themselves (`torch.multinomial`, `Categorical`). It fires if logits are multiplied by
the temperature, and if `torch.multinomial` gets logits, or their largest values, without a softmax.

## Why it is bad
Logits must be divided by the temperature. Multiplying by 0.7 flattens the distribution instead of sharpening it; at 0.2
the answers are word salad. With raw logits as weights, the best token is hardly more likely than the tenth best, and
negative ones raise an error. The bad answers are then blamed on the model.

## Example
```python
import torch

with torch.no_grad():
    logits = model(ids).logits[:, -1] * temperature
    token = torch.multinomial(logits.softmax(-1), 1)
```

## Use instead
```python
import torch

with torch.no_grad():
    logits = model(ids).logits[:, -1] / temperature
    token = torch.multinomial(logits.softmax(-1), 1)
```

## Fix safety
There is no automatic fix. Answers that were sampled this way must be sampled again.

## References
- EricGuo5513/momask-codes#28
- MoonshotAI/Kimi-Audio#161
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Result,
    Value,
    parts_of_value,
)

DRAWS = (
    "torch.multinomial",
    "torch.distributions.Categorical",
    "torch.distributions.*.Categorical",
)
TEMPERATURE = re.compile(r"^(?:self\.|args\.|config\.|cfg\.)?(?:temperature|temp)$", re.I)
LOGITS = re.compile(r"logits|scores")
PROBABILITIES = re.compile(r"softmax|exp|sigmoid|probs?$|weights?$", re.I)
KEEPING_METHODS = (
    "float",
    "double",
    "squeeze",
    "view",
    "to",
    "clone",
    "detach",
    "contiguous",
    "cpu",
)
MAX_VALUES = 200
"""Values behind the weights of a draw; some thirty"""


def _token_draws(module: Module) -> Iterator[ast.AST]:
    """The places that draw tokens."""
    yield from (call.node for call in module.calls(*DRAWS))


class OwnSamplingDistortsAnswers(SourceRule):
    code = "SRC533"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output",)
    severity = "error"
    looks_at = CodePlaces("draws of tokens", _token_draws)

    def findings(self) -> Iterator[Finding]:
        """Findings on draws from another distribution than the model's."""
        module = self.subject
        if next(_token_draws(module), None) is None:
            return
        for node in _multiplied_temperatures(module):
            yield self.finding(
                "logits are multiplied by the temperature: a low temperature makes sampling more random, not less",
                "divide instead: logits / temperature",
                cases=[case_of_node(module, node)],
            )
        for node in _draws_from_logits_without_softmax(module):
            yield self.finding(
                "torch.multinomial needs probabilities but gets logits: the best token is hardly more likely than"
                " others, and negative values raise an error",
                "pass torch.softmax(logits, dim=-1) to torch.multinomial",
                cases=[case_of_node(module, node)],
            )


def _multiplied_temperatures(module: Module) -> Iterator[ast.AST]:
    """The products of logits and a temperature."""
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            for factor, other in ((node.left, node.right), (node.right, node.left)):
                if TEMPERATURE.search(ast.unparse(factor)) and _are_logits(other):
                    yield node
    for one in module.nodes(ast.AugAssign):
        if isinstance(one.op, ast.Mult) and TEMPERATURE.search(ast.unparse(one.value)):
            if _are_logits(one.target):
                yield one


def _are_logits(node: ast.expr) -> bool:
    """Is an expression logits, or a part of them? What a function makes of them, such as a loss, is none."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and _method_name_of_call(node) in KEEPING_METHODS:
            node = node.func
        elif isinstance(node, ast.Attribute) and node.attr in KEEPING_METHODS:
            node = node.value
        else:
            break
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return LOGITS.search(name) is not None


def _method_name_of_call(node: ast.Call) -> str:
    """The name of the method that a call calls; empty for a function."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _draws_from_logits_without_softmax(module: Module) -> Iterator[ast.AST]:
    """The draws by weights that come from a model's logits without a softmax, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.calls("torch.multinomial"):
            weights = call.argument(0, "input")
            if weights is None or call.node in seen or call.home is not module:
                continue
            if _comes_straight_from_logits(weights):
                seen.add(call.node)
                yield call.node


def _comes_straight_from_logits(weights: Value) -> bool:
    """Do weights come from a model's logits, and is nothing on the way that makes probabilities?"""
    waiting, seen = [weights], {id(weights)}
    has_logits = False
    while waiting:
        value = waiting.pop()
        if len(seen) > MAX_VALUES:
            return False
        if isinstance(value, Attribute) and value.name == "logits":
            has_logits = True
            continue
        if isinstance(value, Result):
            name = value.call.method or (value.call.names[0] if value.call.names else "")
            if PROBABILITIES.search(name.rpartition(".")[2]) or name == "__call__":
                return False
        fresh = [part for part in parts_of_value(value) if id(part) not in seen]
        seen.update(map(id, fresh))
        waiting += fresh
    return has_logits
