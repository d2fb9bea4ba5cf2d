"""transformers' Trainer with a loss over supervised tokens, told apart by what they are."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments

from truetune.training.adapter import adapted
from truetune.training.arguments import arguments
from truetune.training.head import token_losses
from truetune.training.prepare import Prepared
from truetune.training.processes import even
from truetune.training.recipe import Recipe, arguments_of
from truetune.training.rows import Data
from truetune.training.watch.losses import SourceLosses


class Ledger(Protocol):
    """Keeps the losses of tokens by what they are."""

    def add(self, losses: torch.Tensor, sources: torch.Tensor, first: torch.Tensor) -> None: ...

    def take(self) -> dict[str, float]:
        """What to log, since the last time."""
        ...


class SupervisedTrainer(Trainer):
    """The loss is the sum of (weight x) cross-entropy over the supervised tokens of a step, divided by their number.

    The number counts all micro-batches and all processes of the step. The loss of an evaluation is per token too, so
    that it does not depend on the batch size.
    """

    def __init__(self, *args: Any, ledger: Ledger | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = True
        self.ledger = ledger
        self._evaluated: list[torch.Tensor] = []

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of one micro-batch, and an empty output where one is asked for."""
        found = token_losses(model, inputs)
        losses = found.losses if found.weights is None else found.losses * found.weights
        total = losses.sum()
        if not model.training:
            self._evaluated.append(
                torch.stack([total.detach().double(), total.new_tensor(len(losses)).double()])
            )
        elif self.ledger is not None and found.sources is not None:
            self.ledger.add(found.losses.detach(), found.sources, found.first)
        count = len(losses) if num_items_in_batch is None else num_items_in_batch
        loss = total / torch.as_tensor(count, device=total.device).clamp(min=1)
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes
        if model.training and found.auxiliary is not None:
            loss = loss + found.auxiliary / self.current_gradient_accumulation_steps
        return (loss, {}) if return_outputs else loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self._even(super()._get_train_sampler(train_dataset), self.args.train_batch_size)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        given = super()._get_eval_sampler(eval_dataset) or SequentialSampler(eval_dataset)
        return self._even(given, self.args.eval_batch_size)

    def _even(self, sampler: Any, batch: int) -> Any:
        return even(sampler, self.args, batch, lambda: int(self.state.epoch or 0))

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """transformers' own, with the loss per token."""
        self._evaluated.clear()
        output = super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )
        if self._evaluated and output.metrics is not None:
            sums = self.accelerator.reduce(torch.stack(self._evaluated).sum(0), "sum")
            output.metrics[f"{metric_key_prefix}_loss"] = (sums[0] / sums[1].clamp(min=1)).item()
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With the losses by source."""
        if self.ledger is not None and "loss" in logs:
            logs |= self.ledger.take()
        super().log(logs, start_time)


def supervised(recipe: Recipe, ready: Prepared, data: Data) -> SupervisedTrainer:
    """The trainer of supervised fine-tuning. Raises SpecError for arguments that it does not know."""
    return SupervisedTrainer(
        model=adapted(ready.model, ready.peft),
        args=arguments(
            TrainingArguments, arguments_of(recipe, evaluates=data.held_out is not None)
        ),
        data_collator=ready.collate,
        train_dataset=data.train,
        eval_dataset=data.held_out,
        processing_class=ready.tokenizer,
        ledger=SourceLosses(),
    )
