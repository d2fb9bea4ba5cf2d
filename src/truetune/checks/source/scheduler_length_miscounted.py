"""The learning rate schedule is built with a wrong number of steps.

## What it does
Looks at the number of steps that a scheduler gets. It fires on:

- rows of a data set that are not divided by a batch size,
- batches that are not divided by the accumulation steps before each `scheduler.step()`,
- batches, if `step()` is called once per epoch,
- epochs, if it is called at each batch,
- the batches of one epoch, if the loop runs several,
- optimizer steps of several batches, if it is called at each batch (under a condition, or in an inner loop over
  micro-batches).

A StepLR or ExponentialLR that is stepped at each batch and leaves a thousandth of the learning rate after 200 batches
or fewer was meant for epochs. Lightning steps a schedule once per epoch unless it is set to `"interval": "step"`.

## Why it is bad
If the schedule is many times longer than the run, the learning rate hardly falls, and a warm-up may never end, so that
nothing is learned. If it is many times shorter, the learning rate is 0 for most of the run.

## Example
```python
from datasets import load_dataset
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

data = load_dataset("some/rows", split="train")
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = AdamW(model.parameters(), lr=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, len(data) * 3)
```

## Use instead
```python
from datasets import load_dataset
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

data = load_dataset("some/rows", split="train")
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = AdamW(model.parameters(), lr=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, len(data) * 3 // 8)  # rows * epochs // batch size
```

## Fix safety
The automatic fix (division by the accumulation steps) is unsafe: a remainder can add a step. For the other cases there
is no automatic fix. The learning rate over the run changes.

## References
- huggingface/accelerate#2318, huggingface/accelerate#1382, huggingface/accelerate#963
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.does_lightning_start_several_processes import (
    is_in_lightning_module,
)
from truetune.checks.source.evidence.learning_rate_schedules import (
    BY_NAME,
    SchedulerPace,
    divisor_of_step_condition,
    expressions_of_number,
    len_calls_in_expression,
    number_is_divided,
    scheduler_pace,
    schedules_with_length,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.checks.source.evidence.schedules_stepped_at_micro_batches import (
    MicroBatchSteps,
    length_counts_optimizer_steps,
    steps_at_micro_batches,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module

BY_STEPS = ("torch.optim.lr_scheduler.StepLR",)
DECAYS = (*BY_STEPS, "torch.optim.lr_scheduler.ExponentialLR")
# Chosen: a learning rate of 2e-5 is 2e-8 then, below what bfloat16 weights take up.
GONE = 1e-3
"""Share of the rate at which nothing moves any more"""
# Chosen, not measured. At half, runs that end after a short epoch are missed; at double, schedules for small sets are
# told.
AT_ONCE = 200
"""Batches in which no run has learned: an epoch of 1,600 rows at 8 a batch"""
MIN_EPOCHS = 2
"""Epochs from which a schedule of one epoch is too short"""


def _schedules_with_length_or_decay(module: Module) -> Iterator[object]:
    """Schedules with a length, and those that multiply the rate by a factor."""
    yield from schedules_with_length(module)
    yield from module.calls(*DECAYS)


class SchedulerLengthMiscounted(SourceRule):
    code = "SRC021"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("learning rate schedules", _schedules_with_length_or_decay)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_epoch_decay_stepped_per_batch()
        for call, total in schedules_with_length(module):
            counts = len_calls_in_expression(module, total)
            rows = [node for node in counts if _is_length_of_type(module, node, "dataset")]
            step = scheduler_pace(module, call)
            micro = steps_at_micro_batches(module, call)
            if micro is not None:
                yield from self._findings_on_micro_batches(total, micro)
            elif rows and not number_is_divided(module, total):
                yield self._finding_on_row_count(total, rows[0])
            elif step is not None and step.is_by_epoch:
                yield from self._findings_on_batch_schedule_stepped_per_epoch(call, total, step)
            else:
                yield from self._findings_on_stepping_by_batch_or_lightning(call, total, step)

    def _findings_on_stepping_by_batch_or_lightning(
        self, call: Call, total: ast.expr, step: SchedulerPace | None
    ) -> Iterator[Finding]:
        """Findings on a schedule that is stepped at each batch or at several, or by Lightning."""
        module = self.subject
        # A length that is a number of epochs fits only who steps once an epoch.
        if step is not None and _length_counts_epochs(module, total, step):
            yield self._finding_on_epoch_schedule_stepped_per_batch(total, step)
        elif _is_returned_to_lightning_without_interval(module, call, total):
            yield self._finding_on_lightning_epoch_stepping(total)
        elif step is not None and _length_counts_only_one_epoch(module, call, total, step):
            yield self._finding_on_length_of_one_epoch(call, total, step)
        elif step is not None and (
            every := _accumulation_divided_but_stepped_each_batch(module, call, total, step)
        ):
            yield self._finding_on_step_at_each_batch(total, step, every)
        else:
            yield from self._findings_on_stepping_per_several_batches(call, total)

    def _findings_on_micro_batches(
        self, total: ast.expr, steps: MicroBatchSteps
    ) -> Iterator[Finding]:
        """Findings on a schedule that is stepped at each micro-batch of an inner loop."""
        module = self.subject
        # accelerate steps a prepared schedule only where the optimizer stepped
        if any(module.methods("prepare")) or not length_counts_optimizer_steps(
            module, total, steps
        ):
            return
        yield self.finding(
            "the schedule counts optimizer steps, but scheduler.step() is called at each micro-batch: the schedule"
            " ends after a part of the run, and from there the learning rate is 0 (or rises again, with a cosine)",
            "call scheduler.step() after optimizer.step(), outside the inner loop",
            cases=[
                case_of_node(module, steps.step.node),
                case_of_node(module, steps.optimizer_step.node),
                case_of_node(module, total),
            ],
        )

    def _finding_on_epoch_schedule_stepped_per_batch(
        self, total: ast.expr, step: SchedulerPace
    ) -> Finding:
        """The finding on a schedule over epochs that is stepped at each batch."""
        module = self.subject
        return self.finding(
            "the schedule counts epochs, but scheduler.step() is called at each batch: it ends after"
            f" {module.text_of(total)} batches",
            "set its length to len(loader) * epochs, or call scheduler.step() once per epoch",
            cases=[case_of_node(module, total), case_of_node(module, step.call.node)],
        )

    def _finding_on_lightning_epoch_stepping(self, total: ast.expr) -> Finding:
        """The finding on a schedule over optimizer steps that Lightning steps once an epoch."""
        return self.finding(
            "the schedule counts optimizer steps, but Lightning steps it once per epoch: the"
            " learning rate hardly changes from its start",
            'return from configure_optimizers {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler,'
            ' "interval": "step"}}',
            cases=[case_of_node(self.subject, total)],
        )

    def _finding_on_step_at_each_batch(
        self, total: ast.expr, step: SchedulerPace, every: ast.expr
    ) -> Finding:
        """The finding on a schedule over optimizer steps that is stepped at each batch."""
        module, text = self.subject, self.subject.text_of(every)
        value = module.flow.value(every)
        share = f"1/{value}" if isinstance(value, int) and value > 1 else f"1/{text}"
        return self.finding(
            f"the schedule counts optimizer steps, one per {text} batches, but scheduler.step() is called at each"
            f" batch: it ends after {share} of the run, and from there the learning rate is 0 (or rises again, with a"
            " cosine)",
            "call scheduler.step() after optimizer.step(), under the same condition",
            cases=[
                case_of_node(module, step.call.node),
                case_of_node(module, total),
                case_of_node(module, every),
            ],
        )

    def _finding_on_length_of_one_epoch(
        self, call: Call, total: ast.expr, step: SchedulerPace
    ) -> Finding:
        """The finding on a schedule over the batches of one epoch, in a loop over several."""
        module, epochs = self.subject, _epoch_count_of_loop(step.epochs)
        assert epochs is not None, "else the epochs are not known"
        kind = module.flow.value(call.argument(0, "name")) if call.named(BY_NAME) else ""
        is_cosine = call.named("transformers.get_cosine_schedule_*") or kind == "cosine"
        swings = "rises again" if is_cosine else "is 0"
        return self.finding(
            f"the schedule counts the batches of one epoch, but the loop runs {max(possible_numbers(module, epochs)):g}"
            f" epochs: from the second on, the learning rate {swings}",
            f"multiply the schedule's length by {module.text_of(epochs)}",
            cases=[
                case_of_node(module, total),
                case_of_node(module, epochs),
                case_of_node(module, step.call.node),
            ],
        )

    def _finding_on_row_count(self, total: ast.expr, row_count: ast.AST) -> Finding:
        """The finding on a schedule whose length is the number of rows."""
        cases = [case_of_node(self.subject, total)]
        if row_count is not total:
            cases.append(case_of_node(self.subject, row_count))
        return self.finding(
            "the schedule counts rows, not steps: it is longer than the run, and the learning rate hardly falls",
            "set its length to len(loader) * epochs // accumulation steps (without accumulation: len(loader) * epochs)",
            cases=cases,
        )

    def _findings_on_epoch_decay_stepped_per_batch(self) -> Iterator[Finding]:
        """Findings on schedules that multiply the rate by a factor for each epoch, and are stepped
        at each batch.
        """
        module = self.subject
        for call in module.calls(*DECAYS):
            step = scheduler_pace(module, call)
            decay = _decay_factor_and_interval(module, call)
            if step is None or step.is_by_epoch or decay is None:
                continue
            gamma, every = decay
            batches = every * math.ceil(math.log(GONE) / math.log(gamma))
            if batches <= AT_ONCE:
                yield self.finding(
                    f"the learning rate is multiplied by {gamma:g} every"
                    f" {f'{every} batches' if every > 1 else 'batch'}: after {batches} batches only a thousandth of it"
                    " is left",
                    "call scheduler.step() once per epoch, after the loop over batches, or choose step_size and gamma"
                    " for batches",
                    cases=[case_of_node(module, call.node), case_of_node(module, step.call.node)],
                )

    def _findings_on_batch_schedule_stepped_per_epoch(
        self, call: Call, total: ast.expr, step: SchedulerPace
    ) -> Iterator[Finding]:
        """Findings on a schedule over batches that is stepped once an epoch."""
        module = self.subject
        epochs = next(iter(possible_numbers(module, _epoch_count_of_loop(step.epochs))), None)
        warmup = next(iter(possible_numbers(module, _warmup_steps_argument(call))), 0)
        # A warm-up longer than the epochs: stepped once an epoch, it never ends.
        is_too_long = epochs is not None and warmup > epochs
        if not is_too_long and not _length_counts_batches(module, total):
            return
        why: tuple[str, ...] = ()
        if epochs is not None and is_too_long:
            why = (
                f"{epochs:g} epochs, a warm-up of {warmup:g} steps: the first epoch runs at a learning"
                f" rate of 0, the last at {(epochs - 1) / warmup:.0%} of it",
            )
        yield self.finding(
            "the schedule counts optimizer steps, but scheduler.step() is called once per epoch: the learning"
            " rate " + ("never gets through its warm-up" if is_too_long else "hardly changes"),
            "call scheduler.step() after each optimizer.step()",
            evidence=why,
            cases=[case_of_node(module, step.call.node), case_of_node(module, total)],
        )

    def _findings_on_stepping_per_several_batches(
        self, call: Call, total: ast.expr
    ) -> Iterator[Finding]:
        """Findings on a schedule over batches that is stepped once for several of them."""
        module, every = self.subject, divisor_of_step_condition(self.subject, call)
        counted = len_calls_in_expression(module, total)
        if every is None or number_is_divided(module, total):
            return
        if not any(_is_length_of_type(module, node, "loader") for node in counted):
            return
        every_text = module.text_of(every)
        text = f"({module.text_of(total)}) // {every_text}"
        simple = isinstance(every, (ast.Name, ast.Attribute, ast.Constant))
        yield self.finding(
            "the schedule counts every batch, but scheduler.step() is only called every"
            f" {every_text} batches: the run ends long before the schedule does",
            f"divide the schedule's length by {every_text}",
            cases=[case_of_node(module, total), case_of_node(module, every)],
            fix=fix_of_changes(module, replace_expression(module, total, text), safe=False)
            if simple
            else None,
        )


def _length_counts_only_one_epoch(
    module: Module, call: Call, total: ast.expr, step: SchedulerPace
) -> bool:
    """Is the length a loader's own, perhaps divided, where the schedule steps on through several epochs?

    A cosine of torch that swings once an epoch may be meant, and a schedule that each epoch makes for itself is right.
    """
    if not call.named("transformers.*") or step.is_by_epoch:
        return False
    if any(parent is step.epochs for parent in module.parents(call.node)):
        return False
    epochs = possible_numbers(module, _epoch_count_of_loop(step.epochs))
    if not epochs or min(epochs) < MIN_EPOCHS:
        return False
    return _is_made_of_one_loader_length(module, total)


def _is_made_of_one_loader_length(module: Module, total: ast.expr) -> bool:
    """Is a length that of a loader, perhaps divided by known numbers?"""
    nodes = list(expressions_of_number(module, total))
    lengths = [node for node in nodes if isinstance(node, ast.Call)]
    others = [node for node in nodes if not isinstance(node, ast.Call | ast.operator | ast.Load)]
    if len(lengths) != 1 or not _is_loader_length(module, lengths[0]):
        return False
    # A product, or a number that is not known, may hold the epochs.
    return all(
        (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)))
        or isinstance(module.flow.value(node), int)
        for node in others
    )


def _is_loader_length(module: Module, node: ast.Call) -> bool:
    """Is it `len(loader)`?"""
    is_length = module.flow.name(node.func) == "len" and len(node.args) == 1
    return is_length and _is_length_of_type(module, node, "loader")


def _accumulation_divided_but_stepped_each_batch(
    module: Module, schedule: Call, total: ast.expr, step: SchedulerPace
) -> ast.expr | None:
    """n, where the optimizer steps at every n-th batch, the length is divided by n, and the schedule steps at each."""
    if step.is_by_epoch or any(module.methods("prepare")):
        return None  # accelerate steps a prepared schedule only where the optimizer stepped
    if any(isinstance(parent, (ast.If, ast.IfExp)) for parent in _nodes_around_step(module, step)):
        return None
    optimizer = schedule.argument(int(schedule.named(BY_NAME)), "optimizer")
    made = {origin.node for origin in module.flow.origins(optimizer)} if optimizer else set()
    for maker in made:
        every = (
            divisor_of_step_condition(module, module.flow.call(maker))
            if isinstance(maker, ast.Call)
            else None
        )
        if every is not None and _is_loader_length_divided_by(module, total, every):
            return every
    return None


def _nodes_around_step(module: Module, step: SchedulerPace) -> Iterator[ast.AST]:
    """The nodes around a step of a schedule, out to its loop over batches."""
    for parent in module.parents(step.call.node):
        if isinstance(parent, (ast.For, ast.While, ast.FunctionDef)):
            return
        yield parent


def _is_loader_length_divided_by(module: Module, total: ast.expr, every: ast.expr) -> bool:
    """Is a loader's length in it, and a division by this number?"""
    if not any(
        _is_length_of_type(module, node, "loader")
        for node in len_calls_in_expression(module, total)
    ):
        return False
    text, value = ast.unparse(every), module.flow.value(every)
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Div, ast.FloorDiv))
        and (
            ast.unparse(node.right) == text
            or (isinstance(value, int) and module.flow.value(node.right) == value)
        )
        for node in expressions_of_number(module, total)
    )


def _is_length_of_type(module: Module, length: ast.Call, kind: str) -> bool:
    """Is `len(...)` that of an object of this type?"""
    return kind in module.flow.types(length.args[0])


def _warmup_steps_argument(call: Call) -> ast.expr | None:
    """The steps of a schedule's warm-up; None where it has none."""
    if not call.named("transformers.get_*"):
        return None
    # get_scheduler takes its own name first, so that every argument is one place further on.
    return call.argument(1 + call.named(BY_NAME), "num_warmup_steps")


def _epoch_count_of_loop(loop: ast.For) -> ast.expr | None:
    """The number of epochs that a loop goes through: `n` of `for epoch in range(n)`, also behind a
    bar: `tqdm(range(n))`, `trange(n)`.
    """
    node: ast.expr | None = loop.iter
    while isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("range", "trange"):
            return node.args[0 if len(node.args) == 1 else 1] if node.args else None
        node = node.args[0] if node.args else None
    return None


def _length_counts_batches(module: Module, total: ast.expr) -> bool:
    """Is the length made of a loader's, or of rows that are divided, and not divided by a loader's again?"""
    counted = list(len_calls_in_expression(module, total))
    if not any(_is_length_of_type(module, node, "loader") for node in counted):
        return any(_is_length_of_type(module, node, "dataset") for node in counted)
    for node in expressions_of_number(module, total):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            below = len_calls_in_expression(module, node.right)
            if any(_is_length_of_type(module, part, "loader") for part in below):
                return False
    return True


def _length_counts_epochs(module: Module, total: ast.expr, step: SchedulerPace) -> bool:
    """Is the length what the loop over epochs goes to?"""
    epochs = _epoch_count_of_loop(step.epochs)
    if epochs is None or any(True for _ in len_calls_in_expression(module, total)):
        return False
    if isinstance(total, ast.Constant) or isinstance(epochs, ast.Constant):
        # Two numbers that are written alike may be the same by chance only where both are written.
        return isinstance(total, ast.Constant) and ast.unparse(total) == ast.unparse(epochs)
    return ast.unparse(total) == ast.unparse(epochs)


def _is_returned_to_lightning_without_interval(module: Module, call: Call, total: ast.expr) -> bool:
    """Does a LightningModule return this schedule of steps without saying that it is one?"""
    function = next((p for p in module.parents(call.node) if isinstance(p, ast.FunctionDef)), None)
    if function is None or not _is_configure_optimizers_or_its_helper(module, function):
        return False
    if any(TELLS_LIGHTNING.search(part.text) for part in module.self_and_files_run_together):
        return False
    # Lightning's own count of a run's steps: whoever gives it to a schedule, undivided, counts steps.
    if any(_counts_steps_of_lightning(node) for node in expressions_of_number(module, total)):
        return not number_is_divided(module, total)
    has_length_call = any(True for _ in len_calls_in_expression(module, total))
    counts_steps = has_length_call or "epoch" not in ast.unparse(total)
    return _warmup_steps_argument(call) is not None and counts_steps


def _counts_steps_of_lightning(node: ast.AST) -> bool:
    """Is the node Lightning's number of optimizer steps, `trainer.estimated_stepping_batches`?"""
    return isinstance(node, ast.Attribute) and node.attr == "estimated_stepping_batches"


def _is_configure_optimizers_or_its_helper(module: Module, function: ast.FunctionDef) -> bool:
    """Is it `configure_optimizers` of a LightningModule, or a function that it calls?"""
    calls = [
        call
        for call in module.flow.calls_of_function_or_class(function)
        if isinstance(call, ast.Call)
    ]
    around = [function, *(parent for call in calls for parent in module.parents(call))]
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "configure_optimizers"
        and is_in_lightning_module(module, node)
        for node in around
    )


# Not every `interval`: LearningRateMonitor and progress bars have a `logging_interval` of their own.
TELLS_LIGHTNING = re.compile(
    r"(?<![\w.])['\"]?interval['\"]?\]?\s*[:=]|lr_scheduler_step|lr_schedulers\(|automatic_optimization"
    r"|LRSchedulerConfig"
)
"""What a file holds that steps its schedule by itself, or says when Lightning does"""


def _decay_factor_and_interval(module: Module, call: Call) -> tuple[float, int] | None:
    """The factor of a schedule that decays, and after how many of its steps it is applied; None where that is not
    known."""
    if call.named(*BY_STEPS):
        every = module.flow.value(call.argument(1, "step_size"))
        # 0.1 is StepLR's own default; ExponentialLR has none.
        is_default = call.lacks("gamma", 2)
        gamma = 0.1 if is_default else module.flow.value(call.argument(2, "gamma"))
    else:
        every, gamma = 1, module.flow.value(call.argument(1, "gamma"))
    if not isinstance(gamma, float) or not isinstance(every, int) or not 0 < gamma < 1:
        return None
    return gamma, every
