"""Rules on the batches that reach the loss in a real trainer."""
