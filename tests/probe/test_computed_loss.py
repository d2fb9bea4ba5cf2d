"""Which function computes the loss: of real trainers that are given one in each way, and of those that pass it by."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
)
from trl import SFTConfig, SFTTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import truetune
from tests import parts
from tests.auditing import tiny
from truetune.report.audit_terminal import describe_loss_function

HERE = os.path.relpath(__file__)
LAWS = ("loss-alive",)
"""One that computes a loss, so that the loss is watched too"""


def weighted(outputs: Any, labels: Any, num_items_in_batch: Any = None, *, by: float = 1.0) -> Any:
    logits, targets = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return by * torch.nn.functional.cross_entropy(logits, targets)


def of_logits(logits: Any, labels: Any, vocab_size: int = 0, **_: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class Focal(torch.nn.Module):
    def forward(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return weighted(outputs, labels, by=2.0)


class Overrides(Trainer):
    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class HandsOn(Trainer):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs)


class Steps(Trainer):
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = of_logits(model(**self._prepare_inputs(inputs)).logits, inputs["labels"])
        loss.backward()
        assert self.optimizer is not None
        self.optimizer.step()
        return loss.detach()


class StepsAsTrainer(Trainer):
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        return super().training_step(*args, **kwargs)


class FailingStep(Trainer):
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("mine")


class Method(Trainer):
    def compute_loss_func(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return weighted(outputs, labels)


class Nowhere:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("mine")

    def __call__(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return weighted(outputs, labels)


def trainer(
    kind: type[Trainer] = Trainer, loss: Any = None, settings: dict[str, Any] | None = None
) -> Any:
    tokenizer = tiny.tokenizer()
    return kind(
        tiny.model(),
        tiny.arguments(**(settings or {})),
        DataCollatorForSeq2Seq(tokenizer),
        tiny.encoded(tiny.chats()),
        processing_class=tokenizer,
        compute_loss_func=loss,
    )


def with_attribute(made: Any, name: str, value: Any) -> Any:
    setattr(made.model if name == "loss_function" else made, name, value)
    return made


def sft(kind: type[SFTTrainer] = SFTTrainer, **given: Any) -> Any:
    return kind(
        tiny.model(),
        args=tiny.arguments(SFTConfig),
        train_dataset=Dataset.from_list(tiny.chats()),
        processing_class=tiny.tokenizer(),
        **given,
    )


def orpo() -> Any:
    return ORPOTrainer(
        tiny.model(),
        args=tiny.arguments(ORPOConfig),
        train_dataset=Dataset.from_list(tiny.pairs()),
        processing_class=tiny.tokenizer(),
    )


class InSft(SFTTrainer):
    compute_loss = Overrides.compute_loss


overriding_function: Any = Overrides.compute_loss
overriding_function = functools.partial(overriding_function, None)


def line_of(function: Any) -> str:
    """`FILE:LINE` of a function of this module."""
    return f"({HERE}:{function.__code__.co_firstlineno})"


def own(function: Any) -> str:
    """A function of this module, as a report names it."""
    return f"{__name__}.{function.__qualname__} {line_of(function)}"


WEIGHTED, OF_LOGITS = own(weighted), own(of_logits)
OVERRIDE, HANDED_ON = own(Overrides.compute_loss), own(HandsOn.compute_loss)
STEP = own(Steps.training_step)
OF_MODEL = "transformers' ForCausalLMLoss"
MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing given": (trainer, OF_MODEL),
    "a function": (lambda: trainer(loss=weighted), WEIGHTED),
    "a partial": (lambda: trainer(loss=functools.partial(weighted, by=2.0)), WEIGHTED),
    "decorated by torch": (
        lambda: trainer(loss=torch.compile(weighted, backend="eager")),
        WEIGHTED,
    ),
    "a module": (
        lambda: trainer(loss=Focal()),
        f"{__name__}.Focal {line_of(Focal.forward)}",
    ),
    "label smoothing": (
        lambda: trainer(settings={"label_smoothing_factor": 0.1}),
        "transformers' LabelSmoother",
    ),
    "an override": (lambda: trainer(Overrides), OVERRIDE),
    "an override that passes the function by": (
        lambda: trainer(Overrides, weighted),
        f"{OVERRIDE}; not called: compute_loss_func {WEIGHTED}",
    ),
    "an override that calls the function": (
        lambda: trainer(HandsOn, weighted),
        f"{HANDED_ON}, which calls compute_loss_func {WEIGHTED}",
    ),
    "an override of the instance": (
        lambda: with_attribute(trainer(), "compute_loss", overriding_function),
        OVERRIDE,
    ),
    "a method that is never called": (
        lambda: trainer(Method),
        f"{OF_MODEL}; not called: a method compute_loss_func {own(Method.compute_loss_func)}",
    ),
    "a step": (
        lambda: trainer(Steps, weighted),
        f"{STEP}; not called: compute_loss_func {WEIGHTED}",
    ),
    "a step that calls the Trainer's": (lambda: trainer(StepsAsTrainer, weighted), WEIGHTED),
    "the model's": (
        lambda: with_attribute(trainer(), "loss_function", of_logits),
        OF_LOGITS,
    ),
    "SFT": (sft, "TRL SFT loss_type=nll"),
    "SFT, dft": (lambda: tiny.sft(loss_type="dft"), "TRL SFT loss_type=dft"),
    "SFT with a function": (lambda: sft(compute_loss_func=weighted), WEIGHTED),
    "SFT with an override": (lambda: sft(InSft), OVERRIDE),
    "SFT that passes the model's by": (
        lambda: with_attribute(sft(), "loss_function", of_logits),
        f"TRL SFT loss_type=nll; not called: model.loss_function {OF_LOGITS}",
    ),
    "DPO": (tiny.dpo, "TRL DPO loss_type=sigmoid"),
    "DPO of two": (lambda: tiny.dpo(loss_type=["sigmoid", "sft"]), "TRL DPO loss_type=sigmoid+sft"),
    "DPO that passes the function by": (
        lambda: with_attribute(tiny.dpo(), "compute_loss_func", weighted),
        f"TRL DPO loss_type=sigmoid; not called: compute_loss_func {WEIGHTED}",
    ),
    "ORPO, which has no loss_type": (orpo, "TRL ORPO"),
}


def functions_of(made: Any) -> list[Any]:
    """What trainer and model hold by the names that are replaced while a pass is watched; None where nothing."""
    names = ("compute_loss", "compute_loss_func", "label_smoother", "_loss_function")
    return [vars(holder).get(name) for holder in (made, made.model) for name in names]


@pytest.mark.parametrize("kind", MADE)
def test_the_function_is_named(kind: str) -> None:
    make, expected = MADE[kind]
    made = make()
    functions = functions_of(made)
    weights = [weight.detach().clone() for weight in made.model.parameters()]
    report = truetune.audit(made, laws=LAWS, batches=1)
    assert describe_loss_function(report.loss) == f"the loss is computed by {expected}"
    assert all(a is b for a, b in zip(functions, functions_of(made), strict=True))
    # A step of the user's own has neither run its backward pass nor that of its optimizer.
    assert all(map(torch.equal, weights, made.model.parameters()))
    assert all(weight.grad is None for weight in made.model.parameters())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nothing given", OF_MODEL),
        ("a function", WEIGHTED),
        ("an override that passes the function by", OVERRIDE),
        ("SFT", "TRL SFT loss_type=nll"),
        ("DPO", "TRL DPO loss_type=sigmoid"),
    ],
)
def test_what_leaves_no_doubt_is_named_without_a_pass(kind: str, expected: str) -> None:
    report = truetune.audit(MADE[kind][0](), laws="none", batches=1)
    assert describe_loss_function(report.loss) == f"the loss is computed by {expected}"


@pytest.mark.parametrize(
    "kind", ["a step", "SFT with a function", "DPO that passes the function by"]
)
def test_what_only_a_pass_can_tell_is_not_known_without_one(kind: str) -> None:
    report = truetune.audit(MADE[kind][0](), laws="none", batches=1)
    assert report.loss["name"] is None
    assert describe_loss_function(report.loss).startswith("the loss is not known: ")
    assert describe_loss_function(report.loss).endswith("no pass was watched")


def test_a_look_that_fails_leaves_the_loss_unknown() -> None:
    report = truetune.audit(trainer(FailingStep), laws=LAWS, batches=1)
    assert (
        describe_loss_function(report.loss)
        == "the loss is not known: the loss of a batch could not be computed (ValueError)"
    )
    report = truetune.audit(trainer(loss=Nowhere()), laws="none", batches=1)
    assert (
        describe_loss_function(report.loss)
        == "the loss is not known: the trainer can't be read (RuntimeError)"
    )


def test_a_loop_of_its_own() -> None:
    loader: Any = torch.utils.data.DataLoader(
        tiny.encoded(tiny.chats()), 2, collate_fn=DataCollatorForSeq2Seq(tiny.tokenizer())
    )

    def named(model: Any, inputs: Any) -> Any:
        return model(**inputs).loss

    report = truetune.audit(tiny.model(), loader, tiny.tokenizer(), laws=LAWS)
    assert (
        describe_loss_function(report.loss)
        == "the loss is not known: a loop of its own computes it"
    )
    report = truetune.audit(tiny.model(), loader, tiny.tokenizer(), laws=LAWS, loss=named)
    assert describe_loss_function(report.loss) == f"the loss is computed by {own(named)}"


def test_on_a_real_model() -> None:
    folder = str(parts.model())
    made = SFTTrainer(
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=tiny.arguments(SFTConfig, per_device_train_batch_size=1),
        train_dataset=Dataset.from_list(tiny.chats()),
        processing_class=AutoTokenizer.from_pretrained(folder),
        compute_loss_func=weighted,
    )
    report = truetune.audit(made, laws=LAWS, batches=1)
    assert describe_loss_function(report.loss) == f"the loss is computed by {WEIGHTED}"
