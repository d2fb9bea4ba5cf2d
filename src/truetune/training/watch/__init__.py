"""Watching: what a model answers while it is trained, and what its losses are made of.

`callback` is the watcher; `sampling_pass_size_and_schedule` decides when it looks, `sample_answers` asks the model,
`forget_later_samples` forgets answers behind a checkpoint, `experiment_trackers` and
`sampling_pass_lines_and_record` show them.
"""
