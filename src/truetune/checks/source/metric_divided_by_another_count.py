"""A score is summed over rows but divided by the number of batches, or the other way round.

## What it does
Looks at values that a loop over a `DataLoader` with several rows per batch adds up, and at their divisor. Right answers
of a batch (`(guess == gold).sum()`) are counted in rows: divided by `len(loader)` they give too much. The loss of a
batch is already a mean: divided by `len(dataset)` it gives too little. Not reported: a loss that is weighted by its
rows, and batches of one row.

It reports other wrong counts as well: right answers that each batch overwrites, so that only the last batch is left
after the loop; rows without a readable answer that are skipped before they are counted (a warning); sums that are not
reset at each epoch (a warning); and last rows that a loader drops or a loop over whole batches never reaches.

## Why it is bad
The value is wrong by the batch size: an accuracy of 11.9, or a validation loss eight times below the training loss,
which looks like an excellent model. It changes with the batch size, not with the model.

## Example
```python
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=5)
loader = DataLoader(rows, batch_size=16, collate_fn=collate)
correct = 0
with torch.no_grad():
    for batch in loader:
        logits = model(**batch).logits
        correct += (logits.argmax(-1) == batch["labels"]).sum().item()
print(correct / len(loader))
```

## Use instead
```python
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=5)
loader = DataLoader(rows, batch_size=16, collate_fn=collate)
correct = 0
with torch.no_grad():
    for batch in loader:
        logits = model(**batch).logits
        correct += (logits.argmax(-1) == batch["labels"]).sum().item()
print(correct / len(rows))
```

## Fix safety
There is no automatic fix. The score changes, and can't be compared with earlier ones of the same script.

## References
- deepspeedai/DeepSpeedExamples#425; pytorch/examples `mnist/main.py` (`test_loss /= len(test_loader.dataset)`, of a
  loss with `reduction='sum'`)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.exponentials_of_mean_losses import is_unweighted_loss
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.checks.source.evidence.terms_and_counts_of_means import (
    Mean,
    mean_expressions,
    terms_of_mean,
)
from truetune.checks.source.evidence.wrong_score_counts_in_loops import (
    equality_counts_of_last_batch,
    loops_over_whole_batches_only,
    sums_of_all_epochs_over_batches_of_one,
    uncounted_skipped_rows,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

Unit = Literal["rows", "batches"]
CASTS = ("item", "cpu", "detach", "float", "tolist", "numpy")
LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")


def _divided_sums_and_counts(module: Module) -> Iterator[ast.AST]:
    """Sums that are divided by the length of a loader, or of its rows, and counts of a loop."""
    yield from (one.assigned for one in equality_counts_of_last_batch(module))
    yield from (one.counting for one in uncounted_skipped_rows(module))
    yield from (one.quotient for one in sums_of_all_epochs_over_batches_of_one(module))
    yield from (one.quotient for one in loops_over_whole_batches_only(module))
    if not module.is_called_here_or_in_linked_files(*LOADERS):
        return
    for mean in mean_expressions(module):
        if _divisor_unit_and_batch_size(module, mean) is not None:
            yield mean.node


class MetricDividedByAnotherCount(SourceRule):
    code = "SRC107"
    fault = Fault.METRIC_AVERAGED_WRONGLY
    severity = "error"
    looks_at = CodePlaces("counts that a figure is divided by", _divided_sums_and_counts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_restarted_counts()
        yield from self._findings_on_skipped_rows()
        yield from self._findings_on_sums_of_all_epochs()
        yield from self._findings_on_last_rows_never_reached()
        if not module.is_called_here_or_in_linked_files(*LOADERS):
            return
        for mean in mean_expressions(module):
            counted = _divisor_unit_and_batch_size(module, mean)
            if (
                counted is None
                or mean.counted is None
                or _is_scaled_by_other_than_100(module, mean)
            ):
                continue
            yield from self._findings_on_divisor_of_other_unit(
                mean, module.text_of(mean.counted), *counted
            )
            loader = _loader_that_drops_rows(module, mean)
            if loader is not None and counted[0] == "rows":
                yield self.finding(
                    f"the loader drops its last rows, but the score is divided by {module.text_of(mean.counted)},"
                    " the number of all rows: the dropped ones count as wrong",
                    "remove drop_last=True from this evaluation loader",
                    cases=[case_of_node(module, loader.node), case_of_node(module, mean.node)],
                )

    def _findings_on_restarted_counts(self) -> Iterator[Finding]:
        """Findings on counts that each batch restarts, and that are read after the loop."""
        module = self.subject
        for counted_alone in equality_counts_of_last_batch(module):
            yield self.finding(
                f"each batch overwrites `{counted_alone.name}`, and it is used after the loop: the score is that of"
                " the last batch only",
                f"add it up: {counted_alone.name} = 0 before the loop, and {counted_alone.name} += ... in it",
                cases=[
                    case_of_node(module, counted_alone.assigned),
                    case_of_node(module, counted_alone.read),
                ],
            )

    def _findings_on_sums_of_all_epochs(self) -> Iterator[Finding]:
        """Findings on sums that no epoch begins again."""
        module = self.subject
        for total in sums_of_all_epochs_over_batches_of_one(module):
            yield self.finding(
                f"`{total.name}` is never reset, but divided by the batches of one epoch: the value of the third"
                " epoch is the sum of three",
                f"set {total.name} = 0.0 at the beginning of each epoch",
                severity="warning",
                cases=[case_of_node(module, total.quotient), case_of_node(module, total.added)],
            )

    def _findings_on_last_rows_never_reached(self) -> Iterator[Finding]:
        """Findings on loops that never reach the last rows."""
        module = self.subject
        for missed in loops_over_whole_batches_only(module):
            yield self.finding(
                f"the loop only takes whole batches of {missed.rows}, but the score is divided by all of them: the"
                " last rows are never evaluated and count as wrong",
                f"step through the rows: for start in range(0, len({missed.rows}), size)",
                cases=[
                    case_of_node(module, missed.loop.iter),
                    case_of_node(module, missed.quotient),
                ],
            )

    def _findings_on_skipped_rows(self) -> Iterator[Finding]:
        """Findings on rows that a `continue` leaves out before they are counted."""
        module = self.subject
        for skipped in uncounted_skipped_rows(module):
            is_list = not isinstance(skipped.counting, ast.AugAssign)
            where = "reach" if is_list else "are counted in"
            yield self.finding(
                f"rows whose answer can't be parsed are skipped before they {where} `{skipped.counter}`: the score"
                " covers"
                " only the readable answers",
                "count every row, so that an unreadable answer counts as wrong: "
                + (
                    f"append a wrong answer to `{skipped.counter}` where the row is skipped now"
                    if is_list
                    else f"move `{skipped.counter} += 1` above the line that skips the row"
                )
                + "; and print how many there are",
                severity="warning",
                cases=[case_of_node(module, skipped.skip), case_of_node(module, skipped.counting)],
            )

    def _findings_on_divisor_of_other_unit(
        self, mean: Mean, divisor: str, unit: Unit, size: int
    ) -> Iterator[Finding]:
        """Findings on sums of one unit that are divided by the number of another."""
        module = self.subject
        for term in terms_of_mean(module, _without_factor_100(mean.values)):
            if unit == "batches" and _counts_equal_rows(module, term):
                yield self.finding(
                    f"right answers are counted by rows but divided by {divisor}, the number of"
                    f" batches: with {size} rows per batch the score goes far beyond 1",
                    "divide by the number of rows: len(loader.dataset)",
                    cases=[case_of_node(module, mean.node), case_of_node(module, term)],
                )
            # A loss that is differentiated is summed for the gradient, where a factor is a learning rate.
            elif (
                unit == "rows"
                and is_unweighted_loss(module, term)
                and not may_record_gradients(module, term)
            ):
                yield self.finding(
                    f"the mean losses of the batches are added up but divided by {divisor}, the number of"
                    f" rows: the value is about {size} times too small",
                    "divide by the number of batches, len(loader); or add up loss.item() * (rows in the batch)",
                    cases=[case_of_node(module, mean.node), case_of_node(module, term)],
                )


def _divisor_unit_and_batch_size(module: Module, mean: Mean) -> tuple[Unit, int] | None:
    """The unit of the count that a sum is divided by, and the rows of a batch; None where that is
    not plain, or is one row.
    """
    counted = _argument_of_len(module, mean.counted)
    if counted is None:
        return None
    if isinstance(counted, ast.Attribute) and counted.attr == "dataset":
        loader = _only_loader_of(module, counted.value)
        return None if loader is None else _unit_and_batch_size("rows", module, loader)
    loader = _only_loader_of(module, counted)
    if loader is not None:
        return _unit_and_batch_size("batches", module, loader)
    loader = _loader_of_rows(module, counted)
    return None if loader is None else _unit_and_batch_size("rows", module, loader)


def _loader_that_drops_rows(module: Module, mean: Mean) -> Call | None:
    """The loader of a figure's rows, where it leaves out the last ones that fill no batch."""
    counted = _argument_of_len(module, mean.counted)
    if counted is None:
        return None
    is_dataset = isinstance(counted, ast.Attribute) and counted.attr == "dataset"
    loader = (
        _only_loader_of(module, counted.value)
        if is_dataset and isinstance(counted, ast.Attribute)
        else _loader_of_rows(module, counted)
    )
    drops = None if loader is None else loader.keywords.get("drop_last")
    return loader if module.flow.value(drops) is True else None


def _argument_of_len(module: Module, divisor: ast.expr | None) -> ast.expr | None:
    """`x` of `len(x)`; None where the divisor is anything else."""
    # `len` of a name that the file defines itself is another function: flow knows which.
    if not isinstance(divisor, ast.Call) or len(divisor.args) != 1:
        return None
    return divisor.args[0] if module.flow.name(divisor.func) == "len" else None


def _loader_of_rows(module: Module, rows: ast.expr) -> Call | None:
    """The loader that is made of these rows; None where the file makes none of them."""
    makers = {origin.node for origin in module.flow.origins(rows)}
    for call in module.calls(*LOADERS):
        loaded = call.argument(0, "dataset")
        if loaded is None:
            continue
        if makers & {origin.node for origin in module.flow.origins(loaded)}:
            return call
    return None


def _is_scaled_by_other_than_100(module: Module, mean: Mean) -> bool:
    """Is the figure divided or multiplied once more, by something else than 100: `loss / len(rows) * batch_size`?"""
    around = module.scopes.parent.get(mean.node)
    if not isinstance(around, ast.BinOp) or not isinstance(around.op, ast.Div | ast.Mult):
        return False
    return not any(_is_hundred(side) for side in (around.left, around.right))


def _without_factor_100(values: ast.expr) -> ast.expr:
    """An expression without its factor 100: `correct` of `100 * correct`."""
    if isinstance(values, ast.BinOp) and isinstance(values.op, ast.Mult):
        if _is_hundred(values.left):
            return values.right
        if _is_hundred(values.right):
            return values.left
    return values


def _is_hundred(node: ast.expr) -> bool:
    """Is it 100, by which a share becomes per cent?"""
    return isinstance(node, ast.Constant) and node.value in (100, 100.0)


def _unit_and_batch_size(unit: Unit, module: Module, loader: Call) -> tuple[Unit, int] | None:
    """The unit with the loader's batch size; None where that is not known, or is one row."""
    size = module.flow.value(loader.argument(1, "batch_size"))
    # Batches of one row: the mean of a batch is then the loss of a row, and both counts are one.
    return (unit, size) if type(size) is int and size > 1 else None


def _only_loader_of(module: Module, node: ast.expr) -> Call | None:
    """The loader that this is; None where it is not one alone. One that Accelerate prepares keeps its batches."""
    nodes = [origin.node for origin in module.flow.origins(node)]
    if len(nodes) != 1 or not isinstance(nodes[0], ast.Call):
        return None
    call = module.flow.call(nodes[0])
    return call if call.named(*LOADERS) else None


def _counts_equal_rows(module: Module, term: ast.expr) -> bool:
    """Is the term the number of rows of a batch that are equal: `(guess == gold).sum().item()`?"""
    node: ast.expr | None = term
    while isinstance(node, ast.Call):
        call = module.flow.call(node)
        if call.method == "sum" and not call.args and not call.keywords:
            return call.receiver is not None and _is_equality_of_values(module, call.receiver)
        if call.named("torch.sum", "numpy.sum", "sum") and len(call.args) == 1:
            return _is_equality_of_values(module, call.args[0])
        node = call.receiver if call.method in CASTS else None
    return False


def _is_equality_of_values(module: Module, node: ast.expr) -> bool:
    """Is the node the result of `==`, also behind casts: `(guess == gold).float()`?"""
    for origin in module.flow.origins(node):
        origin_node = origin.node
        if isinstance(origin_node, ast.Compare) and isinstance(origin_node.ops[0], ast.Eq):
            return True
        if isinstance(origin_node, ast.Call) and module.flow.call(origin_node).method == "eq":
            return True
        if isinstance(origin_node, ast.Call) and module.flow.call(origin_node).method in (
            *CASTS,
            "long",
            "int",
        ):
            receiver = module.flow.call(origin_node).receiver
            return receiver is not None and _is_equality_of_values(module, receiver)
    return False
