"""transformers' Trainer with a loss per supervised token of a whole step, logged by source as well.

Only what decides the loss is overridden: its division by the supervised tokens of a whole step, that of an evaluation,
and samplers that give each process as much. All else (precision, saving, distribution) stays transformers' own.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments

from truetune.training.coordinate_processes_of_run import make_even_sampler
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData
from truetune.training.make_or_load_adapter import add_adapter
from truetune.training.prepare_model import PreparedModel
from truetune.training.supervised_token_losses import compute_token_losses
from truetune.training.trainer_arguments import make_trainer_arguments
from truetune.training.training_recipe import Recipe, trainer_arguments_of_recipe
from truetune.training.watch.losses_by_source import SourceLosses


class SourceLossRecorder(Protocol):
    """Protocol of what sums the losses of tokens by their source, for the log."""

    def add(self, losses: torch.Tensor, sources: torch.Tensor, first: torch.Tensor) -> None:
        """Add the losses (k,) of a batch's supervised tokens, their sources (k,), and whether an
        answer begins there (k,).
        """

    def take(self) -> dict[str, float]:
        """Take the values to log since the last call: the mean losses by source."""
        ...


class SupervisedTrainer(Trainer):
    """A trainer whose loss is the sum of (weight x) cross-entropy over the supervised tokens of a
    step, divided by their number.

    The number counts all micro-batches and all processes of the step. The loss of an evaluation is per token too, so
    that it does not depend on the batch size.
    """

    def __init__(self, *args: Any, ledger: SourceLossRecorder | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # transformers divides the loss by the accumulation steps unless the model takes
        # num_items_in_batch. We divide by the number of tokens ourselves; without this line the
        # gradient would be too small by that factor (tests/training/test_train.py).
        self.model_accepts_loss_kwargs = True
        self.ledger = ledger
        self._evaluated: list[torch.Tensor] = []

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of one micro-batch, with an empty output where one is asked for."""
        tokens = compute_token_losses(model, inputs)
        losses = tokens.losses if tokens.weights is None else tokens.losses * tokens.weights
        total = losses.sum()
        if not model.training:
            # Sums and counts, not means: the mean of the batches' means weighs a short batch as
            # much as a long one. Float64, because a large set sums millions of terms.
            self._evaluated.append(
                torch.stack([total.detach().double(), total.new_tensor(len(losses)).double()])
            )
        elif self.ledger is not None and tokens.sources is not None:
            self.ledger.add(tokens.losses.detach(), tokens.sources, tokens.first)
        # The number of supervised tokens of the whole step, over micro-batches and processes: a
        # token then weighs the same in every batch, which transformers had wrong until 4.46.
        count = len(losses) if num_items_in_batch is None else num_items_in_batch
        loss = total / torch.as_tensor(count, device=total.device).clamp(min=1)
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            # DDP takes the mean over processes; the sum over all tokens divided by their number
            # needs the sum.
            loss = loss * self.accelerator.num_processes
        if model.training and tokens.auxiliary is not None:
            # The balance of experts is a mean over a batch, so it is divided by accumulation, and
            # not by tokens.
            loss = loss + tokens.auxiliary / self.current_gradient_accumulation_steps
        return (loss, {}) if return_outputs else loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Get transformers' own sampler of the training rows, filled up so that each process has as many rows."""
        return self._sampler_with_last_batches_filled(
            super()._get_train_sampler(train_dataset), self.args.train_batch_size
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """Get transformers' own sampler of the evaluation rows, filled up so that each process has as many rows; in
        order where it names none.
        """
        sampler = super()._get_eval_sampler(eval_dataset) or SequentialSampler(eval_dataset)
        return self._sampler_with_last_batches_filled(sampler, self.args.eval_batch_size)

    def _sampler_with_last_batches_filled(self, sampler: Any, batch: int) -> Any:
        """A sampler with its last batches filled up; see `distributed_run.make_even_sampler`."""
        return make_even_sampler(sampler, self.args, batch, lambda: int(self.state.epoch or 0))

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """Evaluate by transformers' own loop, with the loss per supervised token."""
        # Left from the evaluation before the first step, or from one that an error ended.
        self._evaluated.clear()
        output = super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )
        if self._evaluated and output.metrics is not None:
            sums = self.accelerator.reduce(torch.stack(self._evaluated).sum(0), "sum")
            output.metrics[f"{metric_key_prefix}_loss"] = (sums[0] / sums[1].clamp(min=1)).item()
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log by transformers' own function, with the losses by source added."""
        if self.ledger is not None and "loss" in logs:
            logs |= self.ledger.take()
        super().log(logs, start_time)


def make_supervised_trainer(
    recipe: Recipe, ready: PreparedModel, data: TrainingData
) -> SupervisedTrainer:
    """The trainer of supervised fine-tuning. Raises SpecError for arguments that it does not know."""
    return SupervisedTrainer(
        model=add_adapter(ready.model, ready.peft),
        args=make_trainer_arguments(
            TrainingArguments,
            trainer_arguments_of_recipe(recipe, evaluates=data.held_out is not None),
        ),
        data_collator=ready.collate,
        train_dataset=data.train,
        eval_dataset=data.held_out,
        processing_class=ready.tokenizer,
        ledger=SourceLosses(),
    )
