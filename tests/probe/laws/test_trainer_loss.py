"""`compute_loss` gets from the laws what it gets from the run: the count of tokens, the inputs, the dtypes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DataCollatorForSeq2Seq, Trainer

import truetune
from tests.auditing import tiny
from truetune.probe.laws import gradient_accumulation
from truetune.probe.measuring import trainer_gradients
from truetune.probe.measuring.law_input_and_result_types import Trial, Untested

GIVEN: list[Any] = []
LAWS = ("loss-targets", "loss-weights", "gradient-flow", "loss-alive")


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, count: Any) -> torch.Tensor:
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), reduction="sum"
    )
    return total / count


def shifted(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return cross_entropy(outputs["logits"][:, :-1], labels[:, 1:], num_items_in_batch)


def unshifted(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return cross_entropy(outputs["logits"], labels, num_items_in_batch)


class Unshifted(Trainer):
    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = unshifted(outputs, labels, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


class Recording(Trainer):
    """Notes what its loss is given, in training and by the laws."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        seen = (
            inputs["input_ids"].tolist(),
            int(kwargs["num_items_in_batch"]),
            sorted(inputs),
            torch.is_autocast_enabled("cpu"),
        )
        GIVEN.append(seen)  # an attribute of the trainer would be put back
        return super().compute_loss(model, inputs, *args, **kwargs)


def make(kind: type[Trainer] = Trainer, loss: Any = None, **settings: Any) -> Any:
    tokenizer, model = tiny.tokenizer(), tiny.model()
    return kind(
        model,
        tiny.arguments(**settings),
        DataCollatorForSeq2Seq(tokenizer, model),
        tiny.encoded(tiny.chats(16)),
        processing_class=tokenizer,
        compute_loss_func=loss,
    )


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}])
def test_a_loss_that_divides_by_the_count_is_tested(settings: dict[str, Any]) -> None:
    report = truetune.audit(make(loss=shifted, **settings), laws=LAWS)
    assert [report.laws[law]["value"] <= report.laws[law]["tolerance"] for law in LAWS] == [
        True
    ] * 4
    assert not [finding for finding in report.findings if finding.severity == "error"]


@pytest.mark.parametrize("trainer", [lambda: make(loss=unshifted), lambda: make(Unshifted)])
def test_a_loss_without_shift_that_divides_by_the_count_is_found(trainer: Any) -> None:
    report = truetune.audit(trainer(), laws=LAWS)
    assert "loss-target-is-not-next-token" in {finding.rule for finding in report.findings}


@pytest.mark.parametrize("mixed", [False, True])
def test_the_laws_give_what_the_run_gives(mixed: bool) -> None:
    """Of the first batches, those that both have seen."""
    settings = {"gradient_accumulation_steps": 2, "max_steps": 2, "bf16": mixed}
    GIVEN.clear()
    truetune.audit(make(Recording, **settings), laws=["loss-alive"])
    by_laws = GIVEN[:]
    GIVEN.clear()
    make(Recording, **settings).train()
    assert len(GIVEN) == 4
    # The first batch once more: which function computes the loss is seen as it is computed.
    assert by_laws == [GIVEN[0], *GIVEN]


class MeanOfMeans(Trainer):
    """Takes the mean of each micro-batch, and is not divided by their number: what many own losses do."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = shifted(outputs, labels, (labels[:, 1:] != -100).sum())
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("law", ["gradient-accumulation", "process-count"])
def test_16_bits_hide_no_wrong_weights(law: str) -> None:
    """The tolerance of 16 bits lets no mean of means pass, and what a right trainer rounds is far below it."""
    right = truetune.audit(make(bf16=True), laws=[law]).laws[law]
    wrong = truetune.audit(make(MeanOfMeans, bf16=True), laws=[law]).laws[law]
    assert 0 < right["value"] < right["tolerance"] / 2
    assert right["tolerance"] == gradient_accumulation.TOLERANCE_16_BIT
    assert wrong["value"] > 2 * gradient_accumulation.TOLERANCE_16_BIT


@pytest.mark.parametrize("law", ["gradient-accumulation", "process-count"])
def test_attention_is_computed_whole_while_gradients_are_compared(
    law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of fused kernels depend on a batch's shape; afterwards the run has its own kernels again."""
    fused: list[bool] = []
    forward = torch.nn.functional.scaled_dot_product_attention

    def recorded(*tensors: Any, **settings: Any) -> Any:
        fused.append(torch.backends.cuda.flash_sdp_enabled())
        return forward(*tensors, **settings)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    truetune.audit(make(bf16=True), laws=[law])
    assert fused.count(False) >= 3
    assert torch.backends.cuda.flash_sdp_enabled()


def test_a_difference_that_blocks_may_have_made_is_untested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long rows keep the fused kernels, whose rounding on a GPU can be as large as a fault."""
    monkeypatch.setattr(trainer_gradients, "WHOLE_ATTENTION_LENGTH", 1)
    model = torch.nn.Linear(1, 1, device="meta", dtype=torch.bfloat16)
    vars(model)["config"] = SimpleNamespace(_attn_implementation="sdpa")
    trial = Trial(model, [], [])
    with trainer_gradients.attention_without_blocks(trial, [{"input_ids": [1, 2]}]) as whole:
        assert not whole
    gradient_accumulation.refuse_difference_by_fused_attention(trial, 0.01, 0.05, whole=False)
    gradient_accumulation.refuse_difference_by_fused_attention(trial, 0.9, 0.05, whole=True)
    with pytest.raises(Untested, match="rounds by the shape"):
        gradient_accumulation.refuse_difference_by_fused_attention(trial, 0.9, 0.05, whole=False)
