"""A fault injector for the hook of `truetune run`: each of its functions fails in each way, one after the other.

`functions` lists them from the source, `subject` is a training with a hook whose source is changed in one place, and
`table` compares each with the training alone. `python -m tests.probe.injection` runs the whole table and writes it.
"""
