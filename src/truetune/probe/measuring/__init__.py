"""How laws compute: logits, losses and gradients of a run that is about to start, as its own trainer does."""
