"""Python files and notebooks: names resolved, values followed, edits.

`module.read` makes a `Module`; `module.flow` (flow.py) answers what names and expressions stand for, `module.calls`
finds calls, `edits` makes changes of the text that keep everything else as it was.
"""
