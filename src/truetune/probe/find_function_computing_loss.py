"""Finds which function computes the loss of a run: its name, with file and line where it is the user's own.

A loss of the user's own can be given in many ways (`compute_loss_func=`, an override of `compute_loss` or
`training_step`, `model.loss_function`), and some trainers never call what they are given. So it is looked for twice:

- `loss_facts_without_running_a_pass` reads what stands on the trainer and calls nothing. It names a loss only where
  every pass must compute that one.
- `loss_of_one_pass` computes the loss of one micro-batch as the trainer does, and sees which of the functions were
  called, and which of them returned the tensor that became the loss.

The trade-off: the second costs a forward pass, so that it is left out where no law is measured (`--laws none`), and
where the model can't compute in one process alone.
"""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NamedTuple

import torch

from truetune.probe.laws import are_weights_out_of_reach
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    loss_of,
    refuse_trainers_that_sample_answers,
    replace_attribute,
    require_whole_weights,
)
from truetune.probe.training_packages_and_user_code import is_own_code

LossFacts = dict[str, Any]
"""JSON: name, file, line (of the user's own functions; else null), calls and not_called (further functions of the
user's own that the loss of a batch calls, or passes by, each {given_as, name, file, line}), reason (why the loss is not
known; empty where it is)"""
# A chain of wrappers that is longer than this is taken for one without an end.
MAX_WRAPPERS = 50
OF_A_LOOP = "a loop of its own computes it"
NOT_WATCHED = "no pass was watched"


class NamedFunction(NamedTuple):
    """A function by its name."""

    name: str
    """`my_loss`, `losses.focal` or `MyTrainer.compute_loss` of the user's own; `transformers' ForCausalLMLoss`"""
    file: str | None
    """Of the user's own code, relative to the working folder where it is below that"""
    line: int | None
    package: str
    is_own: bool
    """Is it the user's own code?"""

    def facts(self) -> dict[str, Any]:
        """Name and place as JSON."""
        return {"name": self.name, "file": self.file, "line": self.line}


def unknown_loss(reason: str) -> LossFacts:
    """The facts of a loss that is not known."""
    return _loss_facts(None, reason=reason)


def loss_facts_without_running_a_pass(trainer: Any, model: Any, loss: Any = None) -> LossFacts:
    """The loss that every step of this trainer must compute, told without calling anything.

    `loss` is the function that a loop without a trainer names. Whatever the user's objects raise leaves the loss
    unknown.
    """
    try:
        if trainer is None:
            return unknown_loss(OF_A_LOOP) if loss is None else _loss_facts(name_function(loss))
        return TrainerFunctions.of(trainer, model).certain_loss()
    except Exception as error:
        return unknown_loss(f"the trainer can't be read ({type(error).__name__})")


def loss_of_one_pass(trial: Trial, by_structure: LossFacts) -> LossFacts:
    """The loss that the first micro-batch is trained with, seen as it is computed; `by_structure` where that fails.

    Model and trainer are as before afterwards. Raises nothing but what ends a program.
    """
    try:
        if trial.trainer is None or not trial.batches or are_weights_out_of_reach(trial.model):
            return by_structure
        return TrainerFunctions.of(trial.trainer, trial.model).watched_loss(trial)
    except Exception as error:
        if "memory" in str(error) and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if by_structure["name"] is not None:
            return by_structure
        said = str(error) if isinstance(error, Untested) else type(error).__name__
        return unknown_loss(f"the loss of a batch could not be computed ({said})")


class CallRecorder:
    """Calls a function in its place, and notes that it was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.called = False
        self.result: Any = None

    @property
    def stand_in(self) -> Callable[..., Any]:
        """A function that passes everything on; with the name and the signature of the one that it stands for."""

        @functools.wraps(self.function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.called = True
            self.result = self.function(*args, **kwargs)
            return self.result

        return call

    def was_last_returned_by_function(self, loss: Any) -> bool:
        """Is this very tensor what the function returned last, perhaps with outputs beside it?"""
        result = self.result[0] if isinstance(self.result, tuple) and self.result else self.result
        return isinstance(loss, torch.Tensor) and result is loss


class StepEnds(BaseException):
    """Ends a step where its backward pass would begin; no Exception, lest the user's code catch it."""


def _raise_step_ends_instead_of_backward(*_: Any, **__: Any) -> None:
    """Stands in for a backward pass: raises StepEnds, which ends the step."""
    raise StepEnds


def _is_raised_in_backward_pass(error: BaseException) -> bool:
    """Was it raised in torch's backward pass? There is nothing to go back through without gradients."""
    codes = (torch.Tensor.backward.__code__, torch.autograd.backward.__code__)
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


class TrainerFunctions(NamedTuple):
    """The functions of a trainer that may compute its loss; None where there is none."""

    trainer: Any
    model: Any
    """Innermost: of transformers, inside PEFT's"""
    training_step: NamedFunction
    compute_loss: NamedFunction
    given: NamedFunction | None
    """`compute_loss_func`"""
    smoother: NamedFunction | None
    """transformers' label smoothing, or what the user has put in its place"""
    of_model: NamedFunction | None
    """`model.loss_function`, where the model has one that can be watched"""

    @classmethod
    def of(cls, trainer: Any, model: Any) -> TrainerFunctions:
        """The functions of this trainer and model that may compute the loss. Raises what the user's own
        attributes raise.
        """
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        given = getattr(trainer, "compute_loss_func", None)
        smoother = getattr(trainer, "label_smoother", None)
        # A property that `_loss_function` of the instance overrides, since transformers 4.46.
        watchable = isinstance(getattr(type(inner), "loss_function", None), property)
        return cls(
            trainer,
            inner,
            name_function(trainer.training_step),
            name_function(trainer.compute_loss),
            None if given is None else name_function(given),
            None if smoother is None else name_function(smoother),
            name_function(inner.loss_function) if watchable else None,
        )

    def certain_loss(self) -> LossFacts:
        """The loss that is certain without calling anything: what every pass computes, whatever the batch."""
        if self.training_step.is_own:
            return unknown_loss(
                f"{self.training_step.name} is the user's own code, and {NOT_WATCHED}"
            )
        if self.compute_loss.is_own:
            return _loss_facts(self.compute_loss)
        # Sequence parallelism has a function of its own, which passes all others by.
        parallel = getattr(getattr(self.trainer, "accelerator", None), "parallelism_config", None)
        given = self.given or self.smoother
        if self.compute_loss.package == "transformers" and parallel is None:
            if given is not None:
                return _loss_facts(given)
            if self.of_model is not None and _calls_loss_function(self.model):
                return _loss_facts(self.of_model)
        elif (given is None or given.package == self.compute_loss.package) and parallel is None:
            return _loss_facts(self.library_loss())
        return unknown_loss(NOT_WATCHED)

    def watched_loss(self, trial: Trial) -> LossFacts:
        """The loss that the pass of the first batch computes, by watching it. Raises what the pass raises."""
        with (
            fix_mode_without_waiting_for_processes(trial, training=True),
            self._install_call_recorders() as calls,
        ):
            self._compute_first_batch_loss(trial)
        function = self._function_computing_loss_of_pass(calls)
        own = [(calls[name].called, facts) for name, facts in self._watched_functions_of_user()]
        return _loss_facts(
            function,
            calls=[f for called, f in own if called and not f.items() >= function.facts().items()],
            not_called=[f for called, f in own if not called]
            + [*self._shadowed_compute_loss_func_method()],
        )

    def _function_computing_loss_of_pass(self, calls: Mapping[str, CallRecorder]) -> NamedFunction:
        """Which function the loss of a pass is from, by the calls that were made in it."""
        computes = calls["compute_loss"]
        if not computes.called:
            return self.training_step
        if self.compute_loss.is_own:
            return self.compute_loss
        for name, function in (
            ("compute_loss_func", self.given),
            ("label_smoother", self.smoother),
        ):
            # A function that TRL gives to itself is one of its own `loss_type`s.
            if function is not None and calls[name].called and function.package != "trl":
                return function
        # TRL's trainers let the model compute some of their losses, and say so by their `loss_type`.
        model_loss = self.of_model
        if model_loss is not None and (model_loss.is_own or self.compute_loss.package != "trl"):
            if computes.was_last_returned_by_function(calls["_loss_function"].result):
                return model_loss
        if self.compute_loss.package == "transformers":
            return name_function(self.model.forward)
        return self.library_loss()

    def _compute_first_batch_loss(self, trial: Trial) -> None:
        """Compute the loss of the first batch; in `training_step` where that is the user's own code.

        Without gradients: they are not needed, and a step of the user's own ends where it would run its backward pass,
        before it could change a weight.
        """
        batch = dict(trial.batches[0])
        with torch.no_grad():
            if not self.training_step.is_own:
                loss_of(trial, batch)
                return
            refuse_trainers_that_sample_answers(trial)
            require_whole_weights(trial)
            try:
                with replace_attribute(
                    trial.trainer.accelerator, "backward", _raise_step_ends_instead_of_backward
                ):
                    trial.trainer.training_step(trial.model, batch, None)
            except StepEnds:
                pass
            except RuntimeError as error:
                if not _is_raised_in_backward_pass(error):
                    raise

    @contextmanager
    def _install_call_recorders(self) -> Iterator[dict[str, CallRecorder]]:
        """Recorders in the place of the functions, by the attribute that holds each; afterwards all is as before."""
        functions = {
            "compute_loss": (self.trainer, self.trainer.compute_loss),
            "compute_loss_func": (self.trainer, getattr(self.trainer, "compute_loss_func", None)),
            "label_smoother": (self.trainer, getattr(self.trainer, "label_smoother", None)),
            "_loss_function": (self.model, self.of_model and self.model.loss_function),
        }
        with ExitStack() as stack:
            calls = {}
            for attribute, (owner, function) in functions.items():
                if function is not None:
                    call = calls[attribute] = CallRecorder(function)
                    stack.enter_context(replace_attribute(owner, attribute, call.stand_in))
            yield calls

    def _watched_functions_of_user(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The functions of the user's own that were watched: the attribute that holds each, and its facts."""
        watched = {
            "compute_loss": self.compute_loss,
            "compute_loss_func": self.given,
            "_loss_function": self.of_model,
        }
        for attribute, function in watched.items():
            if function is not None and function.is_own:
                given_as = "model.loss_function" if attribute == "_loss_function" else attribute
                yield attribute, {"given_as": given_as, **function.facts()}

    def _shadowed_compute_loss_func_method(self) -> Iterator[dict[str, Any]]:
        """A method `compute_loss_func` is never called: the Trainer sets the instance's attribute, to None."""
        method = getattr(type(self.trainer), "compute_loss_func", None)
        if self.given is None and inspect.isfunction(method) and name_function(method).is_own:
            yield {"given_as": "a method compute_loss_func", **name_function(method).facts()}

    def library_loss(self) -> NamedFunction:
        """A trainer's own loss, as its library calls it: `TRL SFT loss_type=nll`."""
        function = self.compute_loss
        if function.package != "trl":
            return function
        owner = _defining_class(self.trainer, "compute_loss")
        name = f"TRL {owner.__name__.removesuffix('Trainer')}"
        if _reads_loss_type(owner):
            kinds = getattr(self.trainer.args, "loss_type", None)
            kinds = kinds if isinstance(kinds, list | tuple) else [kinds]
            name += f" loss_type={'+'.join(map(str, kinds))}"
        return function._replace(name=name)


def _loss_facts(function: NamedFunction | None, *, reason: str = "", **further: Any) -> LossFacts:
    """The facts of a loss: the function that computes it, if known, the reason if not, and further facts."""
    place = {"name": None, "file": None, "line": None} if function is None else function.facts()
    return {**place, "calls": [], "not_called": [], "reason": reason, **further}


def _defining_class(trainer: Any, name: str) -> type:
    """The class whose own method this is; the trainer's where an instance has been given it."""
    return next((cls for cls in type(trainer).__mro__ if name in vars(cls)), type(trainer))


def _reads_loss_type(owner: type) -> bool:
    """Does a trainer's class read its `loss_type`? Some inherit the setting, and compute another loss (GKD)."""
    methods = [inspect.unwrap(value) for value in vars(owner).values() if callable(value)]
    return any(
        name in ("loss_type", "loss_types")
        for method in methods
        if inspect.isfunction(method)
        for name in method.__code__.co_names
    )


def _calls_loss_function(model: Any) -> bool:
    """Does the code of the model's forward pass name `loss_function`? That of a kernel library may not."""
    return any(
        "loss_function" in code.co_names
        for _, code, _ in _callable_and_what_it_wraps(model.forward)
        if code
    )


def name_function(function: Any) -> NamedFunction:
    """A function, method, partial, or object that can be called, by its name.

    Of a function in wrappers, the outermost that is the user's own code; else the innermost.
    """
    layers = [
        _name_callable_with_file_or_package(*layer)
        for layer in _callable_and_what_it_wraps(function)
    ]
    return next((layer for layer in layers if layer.is_own), layers[-1])


def _name_callable_with_file_or_package(
    name: str, code: CodeType | None, module: str
) -> NamedFunction:
    """A callable by its name: with file and line if it is the user's own, else with its package."""
    file = code.co_filename if code is not None else ""
    package = module.partition(".")[0]
    if code is None or not is_own_code(module, file):
        ending = "'" if package.endswith("s") else "'s"
        return NamedFunction(f"{package}{ending} {name}", None, None, package, False)
    # The main program's file says more than `__main__`.
    name = name if module == "__main__" else f"{module}.{name}"
    return NamedFunction(name, _path_from_working_folder(file), code.co_firstlineno, package, True)


def _callable_and_what_it_wraps(function: Any) -> Iterator[tuple[str, CodeType | None, str]]:
    """(name, code, module) of a callable and of what it wraps, the outermost first; code is None where it is C."""
    for _ in range(MAX_WRAPPERS):
        if isinstance(function, functools.partial):
            function = function.func
            continue
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is not None:
            # By code and globals: a wrapper of functools.wraps has taken the name and module of what it wraps.
            name = getattr(code, "co_qualname", function.__qualname__)
            yield name, code, str(function.__globals__.get("__name__"))
        else:
            yield _name_code_and_module_of_callable(function)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is None:
            return
        function = wrapped


def _name_code_and_module_of_callable(function: Any) -> tuple[str, CodeType | None, str]:
    """Name, code and module of a callable object: of a class's instance the class, and the code that a
    call runs; of a function in C itself.
    """
    if inspect.isbuiltin(function):
        return function.__qualname__, None, str(function.__module__)
    kind = type(function)
    call = kind.forward if isinstance(function, torch.nn.Module) else kind.__call__
    return kind.__qualname__, getattr(call, "__code__", None), kind.__module__


def _path_from_working_folder(file: str) -> str:
    """The path of a file from the working folder, where it is below it; else as it is."""
    if not os.path.isabs(file):
        return file
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the working folder is gone, or on another drive
        return file
    return file if relative.startswith(os.pardir) else relative
