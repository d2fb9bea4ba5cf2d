"""Rules on the tokens that reach the loss."""
