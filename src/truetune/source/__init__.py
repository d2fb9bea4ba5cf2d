"""Static analysis of Python files and notebooks, for the rules on scripts. Nothing of the user's is run or imported.

`module.read_module` makes a `Module`. Its `flow` (`data_flow.py`) says what names and expressions stand for, with
`scopes.py` below it and `constant_values.py` and `inferred_types.py` above it; its `calls` and `methods` find calls.
`program.py` joins files that import each other. `edits.py` makes changes of the text that leave all else as it was.
`script_configs.py` reads the settings of a run from a script.

The trade-off: Python's own `ast` and positions in the text, as ruff does it, instead of libcst or astroid; see
docs/lint.md for what that costs and saves. Inference follows values without a control-flow graph, so it says UNKNOWN
more often than a type checker would, and needs neither the user's environment nor the installed libraries.
"""
