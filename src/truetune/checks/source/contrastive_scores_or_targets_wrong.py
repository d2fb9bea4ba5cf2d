"""A hand-written contrastive loss takes cosines without a scale, or the first text as right for every query.

## What it does
Follows the input of a cross-entropy back to a product of two batches of embeddings. It fires if both are normalized and
nothing scales their product, and if the targets are zeros where the right text of each query is on the diagonal.

## Why it is bad
Cosines lie between -1 and 1. Their softmax over 32 texts gives the right one 19 % at most, so the loss can't fall below
1.6, and hardly learns which texts are close. A temperature of 0.05, which is a factor of 20, is usual. With zeros as
targets, every query is drawn to the first text of its batch.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModel

model = AutoModel.from_pretrained("microsoft/mpnet-base")

for questions, answers in batches:
    one = F.normalize(model(**questions).last_hidden_state[:, 0], dim=-1)
    other = F.normalize(model(**answers).last_hidden_state[:, 0], dim=-1)
    F.cross_entropy(one @ other.T, torch.arange(len(one))).backward()
```

## Use instead
```python
import torch
import torch.nn.functional as F
from transformers import AutoModel

model = AutoModel.from_pretrained("microsoft/mpnet-base")

for questions, answers in batches:
    one = F.normalize(model(**questions).last_hidden_state[:, 0], dim=-1)
    other = F.normalize(model(**answers).last_hidden_state[:, 0], dim=-1)
    F.cross_entropy(one @ other.T / 0.05, torch.arange(len(one))).backward()
```

## Fix safety
Dividing by a temperature of 0.02 to 0.1 is safe. The loss is on another scale then.

## References
- FlagOpen/FlagEmbedding#97 (a maintainer: 0.01 or 0.02; a higher temperature is worse)
- https://sbert.net/docs/package_reference/sentence_transformer/losses.html (scale=20.0)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Attribute, Operation, Result, Value

LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss")
PRODUCTS = ("torch.matmul", "torch.mm")
NORMALIZED = ("torch.nn.functional.normalize",)
TRANSPOSING = ("t", "transpose", "permute", "T", "mT")


class ContrastiveScoresOrTargetsWrong(SourceRule):
    code = "SRC588"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    looks_at = places_of_calls("cross-entropies that are computed or made", *LOSSES)

    def findings(self) -> Iterator[Finding]:
        """Findings on contrastive losses without a scale, or with zeros as targets."""
        module = self.subject
        seen = set()
        for trace in traces_of_scripts_that_reach_file(module):
            for call in trace.all_calls:
                if call.home.path != module.path or call.node in seen or not _is_loss(call):
                    continue
                text, remedy = _fault_of_contrastive_loss(call)
                if text:
                    seen.add(call.node)
                    yield self.finding(text, remedy, cases=[case_of_node(module, call.node)])


def _is_loss(call: CallEvent) -> bool:
    """Does a call compute a cross-entropy?"""
    made = call.receiver
    if call.method in ("__call__", "forward") and isinstance(made, Result):
        return made.call.named("torch.nn.CrossEntropyLoss")
    return call.named("torch.nn.functional.cross_entropy")


def _fault_of_contrastive_loss(call: CallEvent) -> tuple[str, str]:
    """What is wrong with a cross-entropy over products of embeddings, and the remedy; empty where nothing is."""
    scores, target = call.argument(0, "input"), call.argument(1, "target")
    if scores is None or target is None:
        return "", ""
    product = _product_behind(scores)
    if product is None:
        return "", ""
    if _is_made_by(target, "torch.zeros", "torch.zeros_like"):
        return (
            "the targets are zeros, but the right text of each query is on the diagonal: every query is drawn to the"
            " first text of the batch",
            "take torch.arange(len(scores)) as the targets",
        )
    is_unscaled = product is scores and all(map(_is_normalized, _factors(product)))
    if is_unscaled and _is_made_by(target, "torch.arange"):
        return (
            "the cross-entropy gets cosines, from -1 to 1, without a scale: it can't fall far",
            "divide the scores by a temperature, 0.05 for example",
        )
    return "", ""


def _product_behind(scores: Value) -> Value | None:
    """The matrix product of two batches that scores are made of, perhaps scaled; None where they are something else."""
    value = scores
    while isinstance(value, Operation) and value.operator in ("*", "/"):
        value = value.operands[0]
    return value if len(_factors(value)) == 2 else None


def _factors(product: Value) -> tuple[Value, ...]:
    """The two factors of a product with a transposed batch; none for any other value."""
    if isinstance(product, Operation) and product.operator == "@":
        factors: tuple[Value, ...] = product.operands
    elif isinstance(product, Result) and product.call.named(*PRODUCTS):
        factors = product.call.args[:2]
    else:
        return ()
    return factors if len(factors) == 2 and _is_transposed(factors[1]) else ()


def _is_transposed(value: Value) -> bool:
    """Is it a batch whose rows were made columns?"""
    if isinstance(value, Attribute):
        return value.name in TRANSPOSING
    return isinstance(value, Result) and value.call.method in TRANSPOSING


def _is_normalized(factor: Value) -> bool:
    """Are the embeddings of a factor of length 1?"""
    if isinstance(factor, Attribute):
        factor = factor.base
    elif isinstance(factor, Result) and factor.call.method in TRANSPOSING:
        factor = factor.call.receiver or factor
    return _is_made_by(factor, *NORMALIZED)


def _is_made_by(value: Value, *names: str) -> bool:
    """Is a value, perhaps moved or cast, the result of one of these functions?"""
    while isinstance(value, Result) and value.call.method in ("to", "cuda", "long", "float"):
        value = value.call.receiver or value.call.args[0]
    return isinstance(value, Result) and value.call.named(*names)
