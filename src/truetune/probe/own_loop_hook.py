"""The hook of `truetune run` for loops that are no Trainer's: plain PyTorch, Accelerate, Lightning.

Such a loop has no moment at which all is ready, and its data loader says little: the labels may be made between the
loader and the model. So it is watched where nothing can be mistaken. Before a torch optimizer takes a step (torch's own
`register_optimizer_step_pre_hook`), the model of transformers whose weights it holds is found; from then on what the
model's forward pass is given is kept, and after a few micro-batches it is audited, before the next step.

The trade-off: the first step is taken before anything is judged, and a loop that takes one step alone is not judged.
What is judged is what reached the model, and not what a loader was going to give.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truetune.probe.audit_time_limits_and_replies import STOP, Limits
from truetune.probe.contain_own_failures_in_user_program import (
    Lost,
    describe_error,
    note_reason_of_missing_audit,
    run_contained,
)
from truetune.probe.count_optimizer_steps_in_own_loop import LoopSteps
from truetune.probe.forked_process import can_fork

if TYPE_CHECKING:
    from truetune.probe.live_objects import AliveObjects
    from truetune.probe.orders_from_launcher_to_hook import HookOrders
    from truetune.probe.run_record import Record
    from truetune.probe.tokens_taught_by_own_loss import TaughtTokens

# Modules whose own loops are not for this hook: a Trainer's `on_train_begin` is, and TRL's others sample as they go.
TRAINER_MODULES = ("transformers.trainer", "trl.")
CALL_INSTEAD = "call truetune.audit(model, loader, tokenizer) in the script"
# Steps of optimizers without a model of transformers, after which no further one is looked at: each costs a walk over
# all live objects. Chosen, not measured; a GAN or a probe that trains before the model takes fewer.
MAX_STEPS_WITHOUT_MODEL = 200


def watch_optimizers(orders: HookOrders) -> None:
    """Watch the optimizers of this process. torch has been imported."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    loop, limits = OwnLoop(orders), Limits.of(orders)
    # All that the entry point uses is looked at here, where a failure is contained.
    step, lose, seconds = loop.before_step, loop.abandon_audit, float(limits.whole)
    if loop.over is not False:
        raise Lost("the hook for own loops was not made")

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        # A trainer's optimizer is asked once: looking costs each of its steps some tenths of a millisecond.
        known = loop.optimizer_of_trainer
        if loop.over or (known is not None and known() is optimizer):
            return
        # By identity: whatever else comes back here is no verdict.
        if run_contained(step, optimizer, args, kwargs, on_failure=lose, seconds=seconds) is STOP:
            raise SystemExit(1)

    register_optimizer_step_pre_hook(before_step)


class OwnLoop:
    """What is known of the first loop of this process that trains a model of transformers."""

    def __init__(self, orders: HookOrders) -> None:
        self.orders = orders
        self.over = False
        """Judged, given up, or lost: nothing is looked at any more"""
        self._steps = 0
        self._model: Any = None
        self._watch: Any = None
        """torch's handle of the hook behind forward passes"""
        self._batches: list[dict[str, Any]] = []
        self._taught: dict[int, TaughtTokens] = {}
        """What the backward pass of a batch taught, by the batch's number"""
        self._taken = LoopSteps()
        self.optimizer_of_trainer: weakref.ref[Any] | None = None
        """The optimizer that a trainer stepped last; no loop of the user's own steps it"""

    def abandon_audit(self, reason: str) -> None:
        """Lose the audit: nothing is watched any more, and the reason is left for the parent to say."""
        self._end_watching()
        note_reason_of_missing_audit(reason, self.orders)

    def before_step(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """Judge the loop before a step of its optimizer, once enough batches were seen: GO or STOP, else None.

        `args` and `kwargs` are those of the optimizer's `step`.
        """
        if is_inside_a_trainer():
            # Weakly: it holds the states of all weights.
            self.optimizer_of_trainer = weakref.ref(optimizer)
            return None
        self._steps += 1
        if self._model is None:
            self._find_and_watch_model(optimizer)
        if self._model is None:
            return None
        self._taken.note(optimizer, args, kwargs)
        self._taken.between.watch(optimizer, self._listen_to_gradient)
        # All micro-batches of one step at least; then as many as were asked for.
        if not self._batches or len(self._batches) < self.orders["batches"]:
            return None
        return self._audit()

    def _find_and_watch_model(self, optimizer: Any) -> None:
        """Find the model that this optimizer trains, and keep what it is given from now on."""
        from truetune.probe.live_objects import model_trained_by

        self._model = model_trained_by(optimizer)
        if self._model is None:
            self.over = self._steps >= MAX_STEPS_WITHOUT_MODEL
            return
        if is_compiled(self._model):
            raise Lost(
                "the model is compiled, so what its forward pass is given can't be watched; "
                + CALL_INSTEAD
            )
        self._watch = self._watch_forward(self._model)
        # A loop shorter than the batches that were asked for is judged when Python ends.
        atexit.register(self._audit_unjudged_loop_at_exit, os.getpid())
        Path(self.orders["folder"], f"own-loop-{os.getpid()}").touch()

    def _watch_forward(self, watched: Any) -> Any:
        """Watch the model's forward passes: the handle of torch's hook behind those of all modules.

        Not of the model alone: it would stand on the user's object, and be saved with it by `torch.save(model)`.
        """
        from torch.nn.modules.module import register_module_forward_hook

        note = partial(
            run_contained,
            self._copy_tensors_of_forward_pass,
            on_failure=self.abandon_audit,
            seconds=float(Limits.of(self.orders).step),
        )

        def after_forward(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if module is watched and not self.over:
                note(args, kwargs, output)

        try:
            return register_module_forward_hook(after_forward, with_kwargs=True)
        except TypeError:
            raise Lost(
                "this release of torch has no hook that is given what a forward pass is; "
                + CALL_INSTEAD
            ) from None

    def _listen_to_gradient(self, weight: Any, note: Callable[..., None]) -> Any:
        """Have a function told of each gradient of a weight: the handle of torch's hook.

        Nothing can fail in the hook, and it changes no gradient. It is made and registered in one place: autograd
        would call whatever else is handed over in its stead, outside of the boundary.
        """
        seconds = float(Limits.of(self.orders).step)

        def before_accumulation(gradient: Any) -> None:
            if not self.over:
                run_contained(note, gradient, on_failure=self.abandon_audit, seconds=seconds)

        return weight.register_hook(before_accumulation)

    def _copy_tensors_of_forward_pass(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Note one forward pass: keep its tensors, copied, as a loop may change them in place afterwards."""
        import torch

        if not torch.is_grad_enabled():
            return  # an evaluation, or answers that are sampled
        self._taken.between.note_forward()
        if len(self._batches) >= self.orders["batches"]:
            return
        arguments = {
            **dict(zip(positional_argument_names_of_forward(self._model), args, strict=False)),
            **kwargs,
        }
        # `detach` lets the graph go: with it, the activations of these steps would stay in memory.
        kept = {
            name: value.detach().clone()
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor)
        }
        self._listen_to_logits(output, len(self._batches))
        self._batches.append(kept)

    def _listen_to_logits(self, output: Any, number: int) -> None:
        """Read from the gradient at the logits of this batch which tokens are taught, once it is made.

        As with weights, nothing can fail in the hook, and it changes no gradient.
        """
        logits = getattr(output, "logits", None)
        if logits is None or getattr(output, "loss", None) is not None:
            return  # the model computes the loss itself, from its labels
        if logits.ndim != 3 or not logits.requires_grad:
            return
        seconds = float(Limits.of(self.orders).step)

        def before_accumulation(gradient: Any) -> None:
            if not self.over:
                run_contained(
                    self._note_taught_tokens,
                    number,
                    gradient,
                    on_failure=self.abandon_audit,
                    seconds=seconds,
                )

        logits.register_hook(before_accumulation)

    def _note_taught_tokens(self, number: int, gradient: Any) -> None:
        """Note what the backward pass of a batch teaches. A batch without it is judged by what else is known."""
        from truetune.probe.tokens_taught_by_own_loss import read_taught_tokens

        self._taught[number] = read_taught_tokens(gradient.detach())

    def _audit(self) -> str:
        """Audit the loop in a copy of this process, or here where none can be made: GO or STOP."""
        from truetune.probe.audit_session import audit_in_copy

        if self.orders.get("in_place") or not can_fork():
            return self._audit_in_this_process()
        return audit_in_copy(self.take(in_place=False), self.orders, 1, Limits.of(self.orders))

    def _audit_in_this_process(self) -> str:
        """Audit the loop in this process, without a copy: GO or STOP."""
        from truetune.probe.audit_session import audit_in_place

        return audit_in_place(self.take(in_place=True), self.orders, 1, Limits.of(self.orders))

    def take(self, *, in_place: bool) -> LoopRun:
        """Take what was seen of the loop, to be looked at; nothing is watched any more."""
        from truetune.probe.live_objects import AliveObjects

        run = LoopRun(
            self._model,
            self._batches,
            self._taught,
            self._taken,
            AliveObjects.collect(),
            in_place=in_place,
        )
        # Before a copy is made: in the copy, too, the laws compute gradients.
        self._end_watching()
        return run

    def _audit_unjudged_loop_at_exit(self, process: int) -> None:
        """Look at a loop that ended before it was judged. Python is ending: no thread of a clock can be started."""
        if self.over or os.getpid() != process:
            return
        try:
            if self._batches:
                self._audit_in_this_process()
        except BaseException as error:
            self.abandon_audit(describe_error(error))

    def _end_watching(self) -> None:
        """Look at nothing any more."""
        self.over = True
        # First forgotten and then removed: where removing fails, nothing is watched all the same.
        watch, self._watch = self._watch, None
        taken = self._taken
        self._model, self._batches, self._taught, self._taken = None, [], {}, LoopSteps()
        taken.between.stop()
        if watch is not None:
            watch.remove()


class LoopRun:
    """A loop of the user's own: its model, what the forward pass of that was given, and the steps that were taken."""

    def __init__(
        self,
        model: Any,
        batches: list[dict[str, Any]],
        taught: Mapping[int, TaughtTokens],
        steps: LoopSteps,
        alive: AliveObjects,
        *,
        in_place: bool,
    ) -> None:
        self.model = model
        self.batches = batches
        self.taught = taught
        self.steps = steps
        self.alive = alive
        self.in_place = in_place
        self.run_process_count = _environment_variable_as_number("WORLD_SIZE", 1)
        self.rank = _environment_variable_as_number("RANK", 0)

    def observe(self, folder: Path, orders: HookOrders) -> Record:
        """Look at the loop and make its record: what reached the model, with the tokenizer and the rows of the
        process where they can be told.
        """
        from truetune.probe.record_hand_written_training_loop import observe_loop
        from truetune.probe.run_record import write_record_files

        # In the process itself gradients wait to be applied, and the device may be full: no law is tested there.
        # The variables of frames are read in a copy alone: in the process itself they would live on.
        laws = "none" if self.in_place else orders["laws"]
        return observe_loop(
            folder,
            self.model,
            self.batches,
            self.taught,
            self.steps,
            self.alive,
            laws=laws,
            rank=self.rank,
            world=self.run_process_count,
            read_variables=not self.in_place,
            keep=lambda record: write_record_files(record, folder),
        )

    def preserve_process(self) -> AbstractContextManager[None]:
        """A block after which what the process has one of is put back."""
        from truetune.probe.restore_state_changed_by_observing_run import preserve_process_state

        return preserve_process_state(self)


def is_inside_a_trainer() -> bool:
    """Does a Trainer's own loop take this step? Asked of the modules on the stack, and of no variable of theirs."""
    # Only names of modules are read. `f_locals` would make a dictionary of each frame's variables that keeps them alive
    # (before Python 3.13): tensors of the loop would not be freed.
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(TRAINER_MODULES):
            return True
        frame = frame.f_back
    return False


def is_compiled(model: Any) -> bool:
    """Did `torch.compile` take this model, or wrap it? A hook that comes later makes it compile again, or is not
    called."""
    from truetune.probe.live_objects import is_wrapped_by_compile

    return getattr(model, "_compiled_call_impl", None) is not None or is_wrapped_by_compile(model)


def positional_argument_names_of_forward(model: Any) -> list[str]:
    """Names of the positional arguments of a model's forward pass; PEFT's wrapper hands its own on."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return list(inspect.signature(inner.forward).parameters)


def _environment_variable_as_number(name: str, default: int) -> int:
    """A whole number of the environment, as launchers set them."""
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default


def watch_optimizers_once_torch_imported(orders: HookOrders, after: Callable[..., Any]) -> None:
    """Watch optimizers as soon as torch has them; `after` calls when a module has been imported."""
    optimizer = "torch.optim.optimizer"
    if optimizer in sys.modules:
        watch_optimizers(orders)
    else:
        after(
            optimizer,
            partial(
                run_contained,
                watch_optimizers,
                orders,
                on_failure=partial(note_reason_of_missing_audit, orders=orders),
            ),
        )
