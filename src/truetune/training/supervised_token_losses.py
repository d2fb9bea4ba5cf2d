"""Computes the loss of each supervised token by the model's own head, over the positions that have
a label and no others.

A hook in front of the output embedding keeps the hidden states of these places alone, so that all else a model does to
its logits (scales, caps) is done as ever, and an adapter on the head works. With short answers to long prompts that
saves most of the head. On a GPU the logits of a step are never held at once, where TRL's fused head gives this model's
own losses (`use_fused_head_where_it_computes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from truetune.probe.record_run_ready_to_train import unwrap_model
from truetune.render.rendering import IGNORED

NOT_FOR_MODEL = ("labels", "sources", "loss_weights", "num_items_in_batch")
"""Of a batch, what the model is not given"""
FUSED_FLAG = "_truetune_fused"
# Chosen, not measured: the sums of two kernels differ in their last digits, a head that leaves out
# a scale or a cap of the logits by much more. In bfloat16 logits near 20 have steps of 0.125.
MAX_DIFFERENCE, MAX_DIFFERENCE_16_BIT = 1e-3, 0.1
"""Largest difference between two ways to compute a token's loss, in nats; in 16 bits logits are rounded, too"""


class TokenLosses(NamedTuple):
    """Losses with one entry for each supervised token of a batch, in order."""

    losses: torch.Tensor
    """(k,) cross-entropy in nats"""
    weights: torch.Tensor | None
    """(k,) where the batch has loss_weights"""
    sources: torch.Tensor | None
    """(k,) uint8 values of Source, where the batch has them"""
    first: torch.Tensor
    """(k,) does an answer begin here?"""
    auxiliary: torch.Tensor | None
    """(), what a mixture of experts adds to the mean loss of a batch to keep its experts in balance; None without"""


def compute_token_losses(model: Any, batch: dict[str, Any]) -> TokenLosses:
    """The losses of a batch's supervised tokens; runs the model on (rows, tokens)."""
    labels: torch.Tensor = batch["labels"]
    # The one shift of the labels. Models shift too when they are given labels, so these are kept
    # from the model, and no label can be shifted twice.
    targets = labels[:, 1:]
    mask = targets != IGNORED
    inner = innermost_transformers_model(model)
    inputs = {name: value for name, value in batch.items() if name not in NOT_FOR_MODEL} | {
        # A cache of keys and values is never read in training, and would hold all layers' at once.
        "use_cache": False
    }
    if getattr(inner, FUSED_FLAG, False):
        output = model(**inputs, labels=labels, fused_lm_head=True)
        losses = -output.log_probs[mask]
    else:
        with _give_head_supervised_positions_only(inner, mask):
            output = model(**inputs)
        logits = output.logits
        # A model whose head was not reached by the hook (it has none, or computes the logits
        # elsewhere) gives all of them.
        whole = logits.shape[:2] == labels.shape
        logits = logits[:, :-1][mask] if whole else logits[0]
        # In float32: the sum of exponentials over the vocabulary loses its small terms in 16 bits.
        losses = torch.nn.functional.cross_entropy(logits.float(), targets[mask], reduction="none")
    first = (labels[:, :-1] == IGNORED)[mask]
    return TokenLosses(
        losses,
        _batch_column_at_supervised_positions(batch, "loss_weights", mask),
        _batch_column_at_supervised_positions(batch, "sources", mask),
        first,
        _weighted_expert_balance_loss(inner, output),
    )


def innermost_transformers_model(model: Any) -> Any:
    """The transformers model inside of DDP's, FSDP's, DeepSpeed's and peft's."""
    model = unwrap_model(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def use_fused_head_where_it_computes(model: Any) -> bool:
    """Give a model TRL's fused head, where that computes its own losses; False where it does not."""
    from trl.trainer.utils import add_fused_lm_head

    # The first ids are left out: they are control tokens in many vocabularies, whose rows may be
    # untrained.
    ids = (
        torch.arange(2, 10, device=model.device)[None] % model.get_input_embeddings().num_embeddings
    )
    batch = {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}
    # Where something has already replaced this model's forward (Liger does), that one has to come
    # back and not the class's.
    own = vars(model).get("forward")
    with torch.no_grad():
        expected = compute_token_losses(model, batch).losses
        try:
            add_fused_lm_head(model, outputs=("log_probs",))
            setattr(model, FUSED_FLAG, True)
            difference = (compute_token_losses(model, batch).losses - expected).abs().max()
            exact = bool(
                difference
                <= (MAX_DIFFERENCE if model.dtype == torch.float32 else MAX_DIFFERENCE_16_BIT)
            )
        except (AttributeError, TypeError, ValueError, RuntimeError):
            exact = False
    if not exact:
        for name in (FUSED_FLAG, "forward"):
            vars(model).pop(name, None)
        if own is not None:
            model.forward = own
    return exact


@contextmanager
def _give_head_supervised_positions_only(model: Any, mask: torch.Tensor) -> Iterator[None]:
    """While this lasts, the head is given the places of `mask` alone, as one row."""
    head = model.get_output_embeddings()
    if head is None:
        yield
        return

    def select(module: Any, args: tuple[Any, ...]) -> Any:
        hidden = args[0]
        # Not the states of this batch: a model with image tokens, or one that trims the sequence,
        # is left alone and its full logits are selected afterwards.
        if hidden.shape[:2] != (mask.shape[0], mask.shape[1] + 1):
            return None
        # One row of k positions instead of (rows, tokens): the head, which is most of the memory of
        # a small model, runs over k positions only.
        return (hidden[:, :-1][mask][None], *args[1:])

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def _weighted_expert_balance_loss(model: Any, output: Any) -> torch.Tensor | None:
    """The weighted loss that balances a mixture of experts; None where the model has none."""
    loss: torch.Tensor | None = getattr(output, "aux_loss", None)
    share = getattr(model.config.get_text_config(), "router_aux_loss_coef", None)
    return None if loss is None or not share else loss * share


def _batch_column_at_supervised_positions(
    batch: dict[str, Any], name: str, mask: torch.Tensor
) -> torch.Tensor | None:
    """A column of the batch at the supervised positions; None where the batch lacks it."""
    values: torch.Tensor | None = batch.get(name)
    return None if values is None else values[:, 1:][mask]
