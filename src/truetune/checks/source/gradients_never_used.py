"""Gradients are computed, but no optimizer step uses them.

## What it does
For a hand-written loop that calls `backward()`, it checks whether the optimizer of the model's parameters is stepped
anywhere (or passed to code that steps it), and whether `zero_grad()` comes between `backward()` and `step()` on some
path (in a branch, a helper, after clipping, in a method that a trainer calls there). Each step then sees gradients that
were just cleared.

It also finds optimizers with the wrong weights: made before `get_peft_model` wrapped the model (it has the frozen
weights, and none of the adapter); over the reference model, or over a model that is loaded again; over `lm_head` only.
The same happens if the parameters are replaced after the optimizer was made: by shards (`fully_shard`, FSDP without
`use_orig_params`, tensor parallelism), `to_empty`, `load_state_dict(assign=True)`, a replaced module or resized
embeddings, or if weights are unfrozen later.

A DeepSpeed engine that computes gradients has to step, too, and so has a Lightning module with `automatic_optimization
= False`. A `training_step` of a Trainer's subclass has to call `backward`, or that of its base. With accumulated
gradients, `zero_grad()` at every batch leaves each step only those of one batch, and a counter that is raised only
under its own condition ends the steps.

## Why it is bad
No weight moves. The loss stays around one value for all epochs, the gradients look healthy, and nothing fails.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.zero_grad()
    optimizer.step()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in batches:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe: this is the order of every PyTorch loop. The model really trains now, so check its learning rate.

## References
- https://pytorch.org/docs/stable/optim.html ("taking an optimization step")
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (the optimizer is made after it)
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    is_backward_call,
    optimizer_steps_with_optimizers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.faulty_gradient_accumulation_conditions import (
    counters_raised_only_when_stepping,
    zero_grads_at_each_batch_with_their_step,
)
from truetune.checks.source.evidence.generate_call_inputs import is_causal_model
from truetune.checks.source.evidence.gradients_cleared_before_steps import (
    clearings_in_hooks_before_step,
    steps_with_cleared_gradients,
)
from truetune.checks.source.evidence.model_changes_after_optimizers import (
    ChangedLater,
    calls_making_optimizer_and_change,
    model_changes_after_optimizers,
)
from truetune.checks.source.evidence.optimizers_before_adapters import (
    NO_OPTIMIZERS,
    OPTIMIZER_CLASSES,
    optimizers_before_adapters,
)
from truetune.checks.source.evidence.optimizers_holding_wrong_weights import (
    difference_of_held_and_trained_weights,
    owners_of_parameters,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    FUNCTIONS,
    runs_surely_before,
)
from truetune.settings.run_spec import Severity
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ADAPTER_WRAPPERS = (
    "peft.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "unsloth.Fast*Model.get_peft_model",
)
HEAD_NAMES = ("lm_head", "embed_out", "output_head")
"""Attributes of causal language models that hold the head"""
HEAD_GETTER = "get_output_embeddings"
CHANGES: dict[str, tuple[str, str, Severity]] = {
    "replaced": (
        "the optimizer is created before {} is replaced: it has the weights of the old module, and the new ones are"
        " never updated",
        "replace the module first, and create the optimizer after that",
        "error",
    ),
    "resized": (
        "the optimizer is created before resize_token_embeddings, which creates a new output head if it is not tied"
        " (and"
        " new embeddings before transformers 4.44): the optimizer has the old weights",
        "call resize_token_embeddings first, and create the optimizer after it",
        "warning",
    ),
    "sharded": (
        "the optimizer is created before {} replaces the model's parameters by shards: it has the old parameters,"
        " which get no gradient, and the new ones are never updated",
        "create the optimizer after {}",
        "error",
    ),
    "assigned": (
        "the optimizer is created before load_state_dict(assign=True), which replaces the parameters by the loaded"
        " tensors: it has the old parameters, and the new ones are never updated",
        "load the weights first and create the optimizer after that, or load them without assign=True",
        "error",
    ),
    "materialized": (
        "the optimizer is created before to_empty(), which creates new parameters for a model on the meta device: it"
        " has the old ones, and the new ones are never updated",
        "call to_empty() and load the weights first, and create the optimizer after that",
        "error",
    ),
    "unfrozen": (
        "weights are unfrozen after the optimizer is created, which only got those that required a gradient then: the"
        " unfrozen ones are never updated",
        "unfreeze the weights first, or add them with optimizer.add_param_group",
        "error",
    ),
}
"""What is reported of weights that change after an optimizer is made, by the kind of change"""
TRAINER_NAME = re.compile(r"(?:transformers|trl)\.(?:\w+\.)*\w*Trainer")
NO_GRADIENT_METHODS = frozenset(
    f"self.{name}"
    for name in (
        "_prepare_input",
        "_prepare_inputs",
        "autocast_smart_context_manager",
        "compute_loss",
        "compute_loss_context_manager",
        "log",
        "log_metrics",
        "model.train",
        "state.log_history.append",
        "store_metrics",
    )
)
"""Methods of a Trainer that compute no gradient"""
# Whole words, for `num_training_steps` stands in nearly every loop.
STEPPED_ELSEWHERE = re.compile(
    r"\b(?:fused_backward|automatic_optimization|training_step)\b|register_post_accumulate"
)
"""Words of files in which a hook or a framework steps the optimizer"""


def _lines_of_call_order(changed_later: ChangedLater) -> list[str]:
    """The lines of the two calls in the wrong order, where helpers make the optimizer or the change."""
    first, second = calls_making_optimizer_and_change(changed_later)
    if first is changed_later.optimizer.node and second is changed_later.change.node:
        return []
    lines = [getattr(node, "lineno", 0) for node in (first, second)]
    texts = [ast.unparse(node)[:60] for node in (first, second)]
    return [f"line {lines[0]} ({texts[0]}) runs before line {lines[1]} ({texts[1]})"]


def _optimizers_beside_own_backward(module: Module) -> Iterator[Call]:
    """The optimizers of a file that computes gradients itself."""
    if any(map(is_backward_call, module.nodes(ast.Call))):
        yield from _optimizers_made(module)


def _optimizers_made(module: Module) -> Iterator[Call]:
    """The optimizers that a file makes."""
    for call in module.calls(*OPTIMIZER_CLASSES):
        if not call.named(*NO_OPTIMIZERS):
            yield call


def _things_that_must_step(module: Module) -> Iterator[object]:
    """Whatever has to step: optimizers, engines of DeepSpeed, Lightning's modules that optimize by themselves."""
    yield from _optimizers_made(module)
    yield from _deepspeed_engines(module)
    yield from _manual_optimization_settings(module)
    yield from _own_training_steps_dropping_loss(module)
    yield from clearings_in_hooks_before_step(module)
    if not any(_optimizers_made(module)):
        # A helper steps the optimizer that it is given.
        yield from (call for call, _ in optimizer_steps_with_optimizers(module))


class GradientsNeverUsed(SourceRule):
    code = "SRC087"
    fault = Fault.GRADIENTS_NEVER_REACH_OPTIMIZER
    severity = "error"
    looks_at = CodePlaces("optimizers that are made", _things_that_must_step)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_engines()
        yield from self._findings_on_lightning()
        yield from self._findings_on_trainer_steps()
        yield from self._findings_on_accumulation()
        yield from self._findings_on_gradients_cleared_before_step()
        wrapped_later = list(self._findings_on_optimizers_made_before_adapter())
        yield from wrapped_later
        yield from self._findings_on_weights_changed_after_optimizer()
        calls = list(_optimizers_beside_own_backward(module))
        if len(calls) != 1 or STEPPED_ELSEWHERE.search(module.text):
            return
        if not any(
            True for _ in _possible_optimizer_steps(module)
        ) and not _may_be_stepped_elsewhere(module, calls[0]):
            yield self.finding(
                "gradients are computed, but the optimizer never steps: no weight changes",
                "call optimizer.step() after loss.backward()",
                cases=[case_of_node(module, calls[0].node)],
            )
        wrapped = _adapter_after_optimizer(module, calls[0])
        if wrapped is not None and not wrapped_later:
            yield self.finding(
                f"the optimizer is created before {ast.unparse(wrapped.node.func)}: it has the base's weights, which"
                " are then frozen, and none of the adapter",
                f"create the optimizer after {ast.unparse(wrapped.node.func)}",
                cases=[case_of_node(module, calls[0].node), case_of_node(module, wrapped.node)],
            )
        other = difference_of_held_and_trained_weights(module, calls[0])
        if other is not None and wrapped is None and not wrapped_later:
            yield self.finding(
                other.text,
                other.fix,
                cases=[case_of_node(module, calls[0].node), case_of_node(module, other.place)],
            )
        head = _head_optimized_alone(module, calls[0])
        if head is not None:
            yield self.finding(
                f"the optimizer only gets {head}: the layers stay those of the base, whatever the loss says",
                "pass it model.parameters(), or add an adapter to the model and pass the parameters that"
                " require gradients",
                severity="warning",
                cases=[case_of_node(module, calls[0].node)],
            )

    def _findings_on_gradients_cleared_before_step(self) -> Iterator[Finding]:
        """Findings on gradients that are cleared between the backward pass and the step that should
        use them.
        """
        module = self.subject
        for cleared_step in steps_with_cleared_gradients(module):
            cases = [
                case_of_node(module, cleared_step.clearing),
                case_of_node(module, cleared_step.step),
            ]
            if cleared_step.keeps_last_pass:
                yield self.finding(
                    "zero_grad() is called in each pass of a loop that ends before step(): the step only sees the"
                    " gradients of"
                    " the last pass, and the others are cleared unused",
                    "call zero_grad() once before the loop, or after step()",
                    cases=cases,
                )
                continue
            yield self.finding(
                "zero_grad() is called between backward() and step(): each step gets cleared gradients, and no"
                " weight changes",
                "call zero_grad() after step(), or before backward()",
                cases=cases,
            )
        for call in clearings_in_hooks_before_step(module):
            yield self.finding(
                "zero_grad() is called in a method that runs between the backward pass and the step: each step gets"
                " cleared gradients, and no weight changes",
                "remove zero_grad() here: the trainer clears the gradients after its step",
                cases=[case_of_node(module, call)],
            )

    def _findings_on_optimizers_made_before_adapter(self) -> Iterator[Finding]:
        """Findings on optimizers that hold the base's weights when the adapter is trained, by the
        order of what the script does.
        """
        module = self.subject
        for optimizer_before_adapter in optimizers_before_adapters(module):
            wrapper = ast.unparse(
                getattr(
                    optimizer_before_adapter.wrapper.node,
                    "func",
                    optimizer_before_adapter.wrapper.node,
                )
            )
            is_trainer = "peft_config" in optimizer_before_adapter.wrapper.keywords
            yield self.finding(
                f"the optimizer is created before {wrapper}{' adds the adapter' if is_trainer else ''}: it has the"
                " base's weights, which are then frozen, and none of the adapter",
                "add the adapter with get_peft_model first, and create the optimizer after it"
                if is_trainer
                else f"create the optimizer after {wrapper}",
                cases=[
                    case_of_node(module, optimizer_before_adapter.optimizer.node),
                    case_of_node(
                        optimizer_before_adapter.wrapper.home, optimizer_before_adapter.wrapper.node
                    ),
                ],
            )

    def _findings_on_weights_changed_after_optimizer(self) -> Iterator[Finding]:
        """Findings on optimizers that lack weights which were made or unfrozen after them."""
        for changed_later in model_changes_after_optimizers(self.subject):
            text, fix, severity = CHANGES[changed_later.kind]
            yield self.finding(
                text.format(changed_later.name),
                fix.format(changed_later.name),
                severity=severity,
                evidence=_lines_of_call_order(changed_later),
                cases=[
                    case_of_node(self.subject, changed_later.optimizer.node),
                    case_of_node(changed_later.change.home, changed_later.change.node),
                ],
            )

    def _findings_on_accumulation(self) -> Iterator[Finding]:
        """Findings on steps at every so many batches that see the gradients of one, or come once
        and never again.
        """
        module = self.subject
        for clearing, step in zero_grads_at_each_batch_with_their_step(module):
            yield self.finding(
                "zero_grad() is called at every batch but step() only at some: each step gets the gradients of one"
                " batch,"
                " and the others are cleared unused",
                "call zero_grad() after step(), under the same condition",
                cases=[case_of_node(module, clearing), case_of_node(module, step)],
            )
        for raised, step in counters_raised_only_when_stepping(module):
            counter = module.text_of(raised.target)
            yield self.finding(
                f"step() depends on {counter}, which only increases if that condition is true: it is true"
                " at most once, and no step follows",
                f"increase {counter} at every batch, outside of the condition",
                cases=[case_of_node(module, step), case_of_node(module, raised)],
            )

    def _findings_on_engines(self) -> Iterator[Finding]:
        """Findings on engines of DeepSpeed that compute gradients, and are never asked to step."""
        module = self.subject
        for engine in _deepspeed_engines(module):
            passes = [
                call
                for call in module.methods("backward")
                if call.receiver is not None and _is_engine_of_call(module, call.receiver, engine)
            ]
            steps = any(
                call.receiver is None
                or _is_engine_of_call(module, call.receiver, engine) is not False
                for part in module.self_and_files_run_together
                for call in part.methods("step", "train_batch")
            )
            if passes and not steps:
                yield self.finding(
                    "the DeepSpeed engine computes gradients but never steps: no weight changes",
                    "call engine.step() after engine.backward(loss), instead of another optimizer's step",
                    evidence=[
                        "engine.step() updates the engine's weights and clears the gradients"
                    ],
                    cases=[case_of_node(module, passes[0].node), case_of_node(module, engine.node)],
                )

    def _findings_on_lightning(self) -> Iterator[Finding]:
        """Findings on modules of Lightning that take the optimization into their own hands, and do
        nothing with it.
        """
        module = self.subject
        switched = list(_manual_optimization_settings(module))
        parts = module.self_and_files_run_together
        if switched and not any(part.mentions("backward(") for part in parts):
            yield self.finding(
                "automatic_optimization is off, and nothing calls manual_backward: no weight changes",
                "remove this line; or in training_step call self.manual_backward(loss), and step() and zero_grad() of"
                " self.optimizers()",
                cases=[case_of_node(module, switched[0])],
            )
        # Without its optimizer in sight, another file may step it.
        elif (
            switched
            and module.mentions("configure_optimizers")
            and not any(_possible_lightning_steps(module))
        ):
            yield self.finding(
                "automatic_optimization is off, gradients are computed, but no optimizer steps: no weight changes",
                "call self.optimizers().step() after self.manual_backward(loss)",
                cases=[case_of_node(module, switched[0])],
            )

    def _findings_on_trainer_steps(self) -> Iterator[Finding]:
        """Findings on steps of a Trainer that a subclass writes itself, and that compute no
        gradient.
        """
        module = self.subject
        if module.mentions("backward"):
            return
        for step in _own_training_steps_dropping_loss(module):
            yield self.finding(
                "training_step of the Trainer's subclass never calls backward: no gradient is computed, and no weight"
                " changes",
                "call self.accelerator.backward(loss) before training_step returns the loss, or return"
                " super().training_step(...)",
                cases=[case_of_node(module, step)],
            )


def _possible_lightning_steps(module: Module) -> Iterator[Call]:
    """Calls of a Lightning module's files that may step an optimizer; those of its schedules do not."""
    for part in module.self_and_files_run_together:
        for call in part.methods("step", "optimizer_step"):
            made = module.flow.producing_call(call.receiver)
            if made is None or made.method != "lr_schedulers":
                yield call


def _own_training_steps_dropping_loss(module: Module) -> Iterator[ast.FunctionDef]:
    """The `training_step` of subclasses of a Trainer that compute a loss, and leave nothing to another method.

    A method that is not known may compute the gradients.
    """
    for owner in module.nodes(ast.ClassDef):
        bases = module.flow.bases(owner)
        if not any(TRAINER_NAME.fullmatch(name) for name in bases):
            continue
        for step in owner.body:
            is_step = isinstance(step, ast.FunctionDef) and step.name == "training_step"
            if isinstance(step, ast.FunctionDef) and is_step and _uses_loss_nowhere(step):
                yield step


def _uses_loss_nowhere(step: ast.FunctionDef) -> bool:
    """Does a method compute a loss, and give it to nothing that may compute the gradients?"""
    calls = [node for node in ast.walk(step) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    own = {name for name in names if name.startswith(("self.", "super()"))}
    is_plain = "self.compute_loss" in own and own <= NO_GRADIENT_METHODS
    return is_plain and not _passes_loss_on(step, calls)


def _passes_loss_on(step: ast.FunctionDef, calls: list[ast.Call]) -> bool:
    """Is the loss given to a function that may compute the gradients? Those of torch and of Python itself do not."""
    losses = _names_of_computed_losses(step)
    for call in calls:
        name = ast.unparse(call.func)
        is_known = name.startswith(("self.", "super()", "torch.")) or hasattr(builtins, name)
        names = {
            part.id for one in call.args for part in ast.walk(one) if isinstance(part, ast.Name)
        }
        if not is_known and losses & names:
            return True
    return False


def _names_of_computed_losses(step: ast.FunctionDef) -> set[str]:
    """The names that a method sets to what `compute_loss` returns."""
    return {
        target.id
        for part in ast.walk(step)
        if isinstance(part, ast.Assign) and "compute_loss" in ast.unparse(part.value)
        for target in ast.walk(part)
        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
    }


def _deepspeed_engines(module: Module) -> Iterator[Call]:
    """The calls that make an engine of DeepSpeed."""
    return module.calls("deepspeed.initialize")


def _is_engine_of_call(module: Module, receiver: ast.expr, engine: Call) -> bool | None:
    """Is an object the engine that a call makes? None where it is not known what it is.

    The optimizer that `deepspeed.initialize` gives back (its second result) steps for the engine.
    """
    origins = module.flow.origins(receiver)
    if any(
        origin.node is engine.node and origin.path[:1] in ((), (0,), (1,)) for origin in origins
    ):
        return True
    return False if all(isinstance(origin.node, ast.Call) for origin in origins) else None


def _manual_optimization_settings(module: Module) -> Iterator[ast.Assign]:
    """The statements `self.automatic_optimization = False` in a file with a training step."""
    if not module.mentions("training_step"):
        return
    for assign in module.nodes(ast.Assign):
        target = assign.targets[0]
        is_switch = isinstance(target, ast.Attribute) and target.attr == "automatic_optimization"
        if is_switch and module.flow.value(assign.value) is False:
            yield assign


def _head_optimized_alone(module: Module, optimizer: Call) -> str | None:
    """The head of a causal language model, where an optimizer is given its parameters and no others."""
    params_argument = optimizer.argument(0, "params")
    if not isinstance(params_argument, ast.Call) or any(module.methods("add_param_group")):
        return None
    call = module.flow.call(params_argument)
    if call.method != "parameters" or call.receiver is None:
        return None
    owner = call.receiver
    by_method = isinstance(owner, ast.Call) and module.flow.call(owner).method == HEAD_GETTER
    is_head = isinstance(owner, ast.Attribute) and owner.attr in HEAD_NAMES
    model = owner.func if isinstance(owner, ast.Call) else owner
    if not (by_method or is_head) or not isinstance(model, ast.Attribute):
        return None
    return ast.unparse(owner) if is_causal_model(module, model.value) else None


def _possible_optimizer_steps(module: Module) -> Iterator[Call]:
    """Calls that may step an optimizer: any `step` that is not known to be a schedule's."""
    for part in module.self_and_files_run_together:
        for call in part.methods("step", "optimizer_step", "train_batch"):
            made = module.flow.producing_call(call.receiver)
            if module.flow.function_that_expression_names(call.node.func) is not None:
                continue  # a function of the files, whose own calls are looked at
            if made is None or not made.named("torch.optim.lr_scheduler.*", "transformers.get_*"):
                yield call


def _adapter_after_optimizer(module: Module, optimizer: Call) -> Call | None:
    """What puts an adapter on the model behind an optimizer over its weights; None where nothing surely does."""
    if any(any(part.methods("add_param_group")) for part in module.self_and_files_run_together):
        return None
    owners = [
        origin.node
        for owner in owners_of_parameters(module, optimizer)
        for origin in module.flow.origins(owner)
    ]
    for call, model in _adapter_calls_and_models(module):
        is_same = any(origin.node in owners for origin in module.flow.origins(model))
        if is_same and _runs_after(module, call.node, optimizer.node):
            # What is put on when the training is over is not what the optimizer should hold.
            return None if _backward_runs_before(module, call.node) else call
    return None


def _backward_runs_before(module: Module, node: ast.AST) -> bool:
    """Does a backward pass of the files run before a place?"""
    passes = (
        call.node for part in module.self_and_files_run_together for call in backward_calls(part)
    )
    return any(runs_surely_before(module, one, node) for one in passes)


def _adapter_calls_and_models(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that put an adapter on a model, in any file that runs with this one, and the model."""
    for part in module.self_and_files_run_together:
        for call in part.calls(*ADAPTER_WRAPPERS):
            model = call.argument(0, "model")
            if model is not None:
                yield call, model
        for call in part.methods("add_adapter"):
            types = module.flow.types(call.receiver)
            if call.receiver is not None and "model" in types and "peft-model" not in types:
                yield call, call.receiver


def _runs_after(module: Module, node: ast.AST, other: ast.AST) -> bool:
    """Does a node run after the other: further down in one block of code, or in a function that is
    called later?
    """
    if _function_or_file_around(module, node) is _function_or_file_around(module, other):
        return _stands_after(module, node, other)
    return runs_surely_before(module, other, node)


def _function_or_file_around(module: Module, node: ast.AST) -> ast.AST:
    """The function that a place stands in; its file where it stands in none."""
    functions = (one for one in module.parents(node) if isinstance(one, FUNCTIONS))
    return next(functions, module.home(node).tree)


def _stands_after(module: Module, node: ast.AST, other: ast.AST) -> bool:
    """Does a node stand after the other in one list of statements, or in a block of a later one?"""
    first = module.statement(other)
    around = [node, *module.parents(node)]
    block = next((b for b in _sibling_blocks(module, first) if first in b), []) if first else []
    later = block[block.index(first) + 1 :] if first in block else []
    return any(part in later for part in around)


def _sibling_blocks(module: Module, statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements of the statement around this one."""
    parent = next(iter(module.parents(statement)), None)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list):
            yield block


def _call_surely_steps_no_optimizer(module: Module, call: Call) -> bool:
    """Does a call that is given an optimizer surely not step it itself?"""
    return (
        call.named("torch.optim.lr_scheduler.*", "transformers.get_*")
        or call.method in ("prepare", "unscale_")
        or module.flow.function_that_expression_names(call.node.func) is not None
    )


def _may_be_stepped_elsewhere(module: Module, made: Call) -> bool:
    """Is the optimizer given to something, or returned, that may step it: a trainer, an engine?

    A schedule does not, and what Accelerate prepares or a scaler unscales has to be stepped all the same. What a
    function of the files does with it is seen there.
    """
    for node in module.nodes(ast.Call):
        call = module.flow.call(node)
        if _call_surely_steps_no_optimizer(module, call):
            continue
        arguments = [*call.args, *call.keywords.values()]
        if any(one.node is made.node for part in arguments for one in module.flow.origins(part)):
            return True
    return any(
        one.node is made.node
        for node in module.nodes(ast.Return)
        if node.value is not None
        for part in ast.walk(node.value)
        if isinstance(part, ast.Name)
        for one in module.flow.origins(part)
    )
