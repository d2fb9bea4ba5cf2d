from functools import partial

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)


def checkpoint_layers(model, class_name="Qwen2DecoderLayer"):
    """Recompute each decoder layer in the backward pass instead of keeping its activations."""
    wrap = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrap, check_fn=lambda m: type(m).__name__ == class_name
    )
    return model


def wrapped_count(model):
    return sum(1 for n, _ in model.named_modules() if n.endswith("_checkpoint_wrapped_module"))
