"""Watching: what a model answers while it is trained, and what its losses are made of.

`callback` is the watcher; `sampling_schedule` decides when it looks, `sample_answers` asks the model,
`forget_later_samples` forgets answers behind a checkpoint, `experiment_trackers` and `watch_summary` show them.
"""
