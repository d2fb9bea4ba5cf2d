"""What reached the loss in a real trainer: the record of a run, with every token of its batches placed."""
