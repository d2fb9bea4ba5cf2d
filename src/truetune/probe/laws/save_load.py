"""A model that was saved and loaded gives the same logits."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from truetune.probe.compact_vocabulary_to_used_ids import vocab_map_of
from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import compute_logits, cut_rows, first_batch_with_ids
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import relative_difference, rounding_tolerance
from truetune.probe.shrink_config import SHRUNK_ATTRIBUTE

COST: Cost = "whole"
# Names of tensors that are shown.
MAX_SHOWN_NAMES = 8


def measure_law(trial: Trial) -> Measured:
    """Measure how far the logits of a real batch change when the model is saved as the trainer does and
    loaded again. Each trained tensor is moved a little before, as training will, and put back
    afterwards.
    """
    model: Any = trial.model
    if not hasattr(model, "save_pretrained") or not hasattr(type(model), "from_pretrained"):
        raise Untested("the model has no save_pretrained")
    if vocab_map_of(model) is not None or getattr(
        type(model).from_pretrained, SHRUNK_ATTRIBUTE, False
    ):
        raise Untested(
            "a miniature's weights fit no file; truetune run tests it on the model itself"
        )
    if getattr(model, "is_quantized", False) or getattr(
        getattr(model, "config", None), "quantization_config", None
    ):
        raise Untested("the model is quantized")
    inputs = cut_rows(trial, first_batch_with_ids(trial))
    base = _copy_base_model(model) if hasattr(model, "peft_config") else None
    with tempfile.TemporaryDirectory() as folder, _nudge_trained(model), _silence_transformers():
        expected = compute_logits(model, inputs, training=False)
        _save_as_trainer(trial, folder)
        loaded = _load_again(model, base, folder).to(expected.device)
        difference = compute_logits(loaded, inputs, training=False)
        differ = _differing_tensors(model, loaded)
        files = sorted(path.name for path in Path(folder).iterdir())
    evidence = {
        "differ": differ[:MAX_SHOWN_NAMES],
        "tensors that differ": len(differ),
        "files": files,
        "dtype": str(next(loaded.parameters()).dtype).removeprefix("torch."),
    }
    return Measured(
        relative_difference(expected, difference),
        rounding_tolerance(model),
        "relative difference of logits",
        evidence,
    )


@contextmanager
def _nudge_trained(model: torch.nn.Module) -> Iterator[None]:
    """Every trained tensor is moved by a tenth of its size."""
    torch.manual_seed(0)
    # On the CPU, since a second copy of the weights may not fit on the device.
    kept = [(p, p.detach().to("cpu", copy=True)) for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        try:
            for parameter, _ in kept:
                # The last summand moves tensors of zeros as well. Without the move, a tensor that is not saved would be
                # read from its initial value, which is what it still has.
                size = 0.1 * parameter.float().pow(2).mean().sqrt() + 0.01
                parameter.add_(torch.randn_like(parameter) * size.to(parameter.dtype))
            yield
        finally:
            for parameter, before in kept:
                parameter.copy_(before)


def _copy_base_model(model: Any) -> Any:
    """A copy of the base model, without its adapter."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        # What a trainer put around the forward is bound to the first model.
        vars(module).pop("forward", None)
    return twin.unload() if hasattr(twin, "unload") else twin.get_base_model()


def _save_as_trainer(trial: Trial, folder: str) -> None:
    """Save as the trainer saves its checkpoints, which may leave out or rename what the model alone would write."""
    trainer: Any = trial.trainer
    if (
        getattr(trainer, "model", None) is trial.model
        and "_internal_call" in inspect.signature(trainer.save_model).parameters
    ):
        trainer.save_model(folder, _internal_call=True)
    else:
        trial.model.save_pretrained(folder)  # type: ignore[operator]


def _load_again(model: Any, base: Any, folder: str) -> Any:
    """The model of the files; an adapter onto a copy of its base."""
    if base is not None:
        return type(model).from_pretrained(base, folder)
    import transformers

    # transformers 5 renamed the argument, and warns of the former name.
    dtype = "dtype" if int(transformers.__version__.partition(".")[0]) >= 5 else "torch_dtype"
    attention = getattr(model.config, "_attn_implementation", None)
    return type(model).from_pretrained(folder, **{dtype: "auto"}, attn_implementation=attention)


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """transformers neither logs nor draws bars."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(40)
    _set_progress_bar_visibility(logging, False)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        _set_progress_bar_visibility(logging, bars)


def _set_progress_bar_visibility(logging: Any, visible: bool) -> None:
    """Show the progress bars of transformers, or hide them."""
    (logging.enable_progress_bar if visible else logging.disable_progress_bar)()


def _differing_tensors(model: torch.nn.Module, loaded: torch.nn.Module) -> list[str]:
    """Names of tensors that are not the same, or not there."""
    new = loaded.state_dict()
    return [
        name
        for name, tensor in model.state_dict().items()
        if name not in new or not torch.equal(tensor.cpu(), new[name].to("cpu", tensor.dtype))
    ]
