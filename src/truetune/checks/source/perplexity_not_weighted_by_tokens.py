"""Perplexities of texts, or losses of batches, are averaged without weighting them by their tokens.

## What it does
Looks for a mean of `exp(loss)` over texts or batches, and for `exp` of a plain mean of the losses of batches that are
padded to their longest row (info if it is not certain that they are). Lightning's `self.log` in `validation_step` takes
such a mean, and `mean_perplexity` of Hugging Face Evaluate is one. Lists and sums are traced through functions, classes
and files. A loss is what a model returns, or a cross-entropy. Overlapping windows whose labels count the overlap twice
are reported, too. It does not fire if losses are weighted by their tokens, if rows are cut into blocks of equal length,
or for a median.

## Why it is bad
`exp` lets one bad text outweigh all others: a text of two tokens with a loss of 14 has a perplexity of a million. In
one real data set such a mean was 41,873, while the loss per token gives 6.8. The mean of exponentials is never below
the exponential of the mean, and other tools report the latter.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
scores = []
with torch.no_grad():
    for batch in loader:
        loss = model(**batch).loss
        scores.append(torch.exp(loss).item())
perplexity = sum(scores) / len(scores)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
total, tokens = 0.0, 0
with torch.no_grad():
    for batch in loader:
        loss = model(**batch).loss
        count = (batch["labels"][:, 1:] != -100).sum().item()
        total, tokens = total + loss.item() * count, tokens + count
perplexity = torch.tensor(total / tokens).exp()
```

## Fix safety
There is no automatic fix. The number changes, and can't be compared with earlier ones of the same script. If a mean of
perplexities is intended (one per document, for a ranking), name it so; a median is robust against outliers.

## References
- huggingface/transformers#34138, huggingface/transformers#34387, lisa-lab/pylearn2#1383
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.exponentials_of_mean_losses import (
    exponent_of,
    exponential_of_loss_in,
    is_exponential_of_mean,
    is_unweighted_loss,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.checks.source.evidence.overlapping_perplexity_windows import overlapping_windows
from truetune.checks.source.evidence.perplexities_averaged_without_token_weights import (
    AveragedPerplexities,
    averaged_perplexities,
)
from truetune.checks.source.evidence.terms_and_counts_of_means import (
    Mean,
    mean_expressions,
    terms_of_mean,
)
from truetune.source.parsed_source_file import Module

EXPONENTIALS = ("torch.exp", "math.exp", "numpy.exp", "numpy.exp2")
OF_ONE_LENGTH = ("block_size", "group_texts", "chunk", "stride", "packing", "packed", "seq_len")
"""Signs that all rows have one length, so that all batches count alike"""
PADS = ("padding=True", 'padding="longest"', "DataCollator", "pad_sequence", "collate_fn")
EVALUATION_STEPS = ("validation_step", "test_step")
OF_PERPLEXITIES = (
    "perplexities are averaged, so the worst texts dominate: exp is taken before the mean"
)
OF_LOSSES = (
    "losses of batches are averaged as if all batches had the same number of tokens, and the"
    " perplexity is computed from that"
)
REMEDY = "sum up loss * tokens and tokens over all texts, and compute exp(total / tokens) once"


def _exponentials_of_losses(module: Module) -> Iterator[ast.Call]:
    """Exponentials of losses: `torch.exp(loss)`, `loss.exp()`."""
    for call in module.calls(*EXPONENTIALS):
        if call.args:
            yield call.node
    for call in module.methods("exp"):
        yield call.node


def _may_record_gradients(module: Module, loss: ast.expr) -> bool:
    """May gradients be recorded where a loss is read, and where the forward pass that it comes from runs?"""
    if not may_record_gradients(module, loss):
        return False
    names = (node for node in ast.walk(loss) if isinstance(node, ast.Name))
    makers = (module.flow.producing_call(name) for name in names)
    return all(may_record_gradients(module, maker.node) for maker in makers if maker is not None)


def _evaluation_values_lightning_averages(module: Module) -> Iterator[ast.expr]:
    """The values that steps of an evaluation give to `self.log`, which takes the mean over the
    epoch.
    """
    for call in module.methods("log", "log_dict"):
        around = next(
            (one for one in module.parents(call.node) if isinstance(one, ast.FunctionDef)), None
        )
        if around is None or around.name not in EVALUATION_STEPS or "reduce_fx" in call.keywords:
            continue
        if module.flow.value(call.keywords.get("on_epoch")) is False:
            continue
        logged = (
            call.argument(1, "value") if call.method == "log" else call.argument(0, "dictionary")
        )
        if isinstance(logged, ast.Dict):
            yield from logged.values
        elif logged is not None:
            yield logged


class PerplexityNotWeightedByTokens(SourceRule):
    code = "SRC028"
    fault = Fault.METRIC_AVERAGED_WRONGLY
    severity = "warning"
    looks_at = CodePlaces(
        "exponentials",
        lambda module: (*_exponentials_of_losses(module), *averaged_perplexities(module)),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for window in overlapping_windows(module):
            yield self.finding(
                "windows of the text overlap, but their labels are all of their ids: tokens in the overlap count"
                " twice, and the first tokens of a window are predicted with almost no context",
                "set labels[:, :-new] = -100, where new is the number of tokens that were not in the previous window,"
                " and weight the window's loss by new",
                cases=[case_of_node(module, window.call), case_of_node(module, window.loop.iter)],
            )
        followed = list(averaged_perplexities(module))
        yield from self._findings_in_traced_runs(followed)
        # What the run follows is judged by it, and not once more by its text.
        judged = [one for one in followed if one.is_of_perplexities or one.are_padded]
        lines = {module.place(one.mean)[0] for one in judged}
        for finding in self._findings_in_text():
            if not any(case.line in lines for case in finding.cases):
                yield finding

    def _findings_in_traced_runs(
        self, followed: Iterable[AveragedPerplexities]
    ) -> Iterator[Finding]:
        """Findings on means that a symbolic run follows."""
        module = self.subject
        is_of_one_length = any(
            part.mentions(*OF_ONE_LENGTH) for part in module.self_and_files_run_together
        )
        for one in followed:
            cases = [
                case_of_node(module, node) for node in dict.fromkeys((one.mean, one.exponential))
            ]
            if one.is_of_perplexities:
                yield self.finding(OF_PERPLEXITIES, REMEDY, cases=cases)
            elif one.are_padded and not is_of_one_length:
                yield self.finding(OF_LOSSES, REMEDY, cases=cases)

    def _findings_in_text(self) -> Iterator[Finding]:
        """Findings on means that the text of the file shows."""
        module = self.subject
        exponentials = {node: exponent_of(module, node) for node in _exponentials_of_losses(module)}
        if not exponentials:
            return
        for mean in mean_expressions(module):
            for term in terms_of_mean(module, mean.values):
                node = exponential_of_loss_in(module, term, exponentials)
                if node is not None:
                    yield self.finding(
                        OF_PERPLEXITIES,
                        REMEDY,
                        cases=[case_of_node(module, mean.node), case_of_node(module, node)],
                    )
            yield from self._findings_on_batch_means(mean, exponentials)
        for value in _evaluation_values_lightning_averages(module):
            node = exponential_of_loss_in(module, value, exponentials)
            if node is not None:
                yield self.finding(
                    "perplexities of batches are logged, and Lightning averages them over the epoch: the worst batches"
                    " dominate",
                    "log the loss instead, with batch_size=<number of tokens in the batch>, and take exp of its mean"
                    " in on_validation_epoch_end",
                    cases=[case_of_node(module, node)],
                )

    def _findings_on_batch_means(
        self, mean: Mean, exponentials: dict[ast.Call, ast.expr | None]
    ) -> Iterator[Finding]:
        """Findings on the exponential of a plain mean of batch losses."""
        module = self.subject
        # Batches count alike where all rows have one length; without padding, batches of several lengths can't be
        # made.
        if module.mentions(*OF_ONE_LENGTH) or not module.mentions(*PADS):
            return
        losses = [
            term for term in terms_of_mean(module, mean.values) if is_unweighted_loss(module, term)
        ]
        # A loss that is differentiated is trained on, and its exponential is only shown beside it.
        if not losses or any(_may_record_gradients(module, loss) for loss in losses):
            return
        for node, power in exponentials.items():
            if power is not None and is_exponential_of_mean(module, power, mean.node):
                yield self.finding(
                    OF_LOSSES,
                    REMEDY,
                    severity="info",
                    cases=[case_of_node(module, mean.node), case_of_node(module, node)],
                )
