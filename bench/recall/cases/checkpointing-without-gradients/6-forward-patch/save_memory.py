import functools

from torch.utils.checkpoint import checkpoint


def _recomputed(forward):
    @functools.wraps(forward)
    def run(hidden_states, *args, **kwargs):
        call = functools.partial(forward, **kwargs)
        return checkpoint(call, hidden_states, *args, use_reentrant=True)

    return run


def recompute_layers(model, every=1):
    """Patch the decoder layers so that their activations are computed again in backward."""
    layers = model.get_base_model().model.layers
    for i, layer in enumerate(layers):
        if i % every == 0:
            layer.forward = _recomputed(layer.forward)
    return len(layers)
