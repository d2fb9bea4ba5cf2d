"""Watching: what a model answers while it is trained, and what its losses are made of.

`callback` is the watcher; `sampling_schedule` decides when it looks, `sample_answers` asks the model, `sample_files`
keeps the answers, `experiment_trackers` and `watch_summary` show them.
"""
