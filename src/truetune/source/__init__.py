"""Static analysis of Python files and notebooks, for the rules on scripts. Nothing of the user's is run or imported.

`parsed_source_file.py` makes a `Module` of a file. Its `flow` (`data_flow.py`) says what names and expressions stand
for, with `name_bindings_in_scopes.py` below it, and `evaluate_constant_expressions.py` and `infer_object_types.py`
above it; its `calls` and `methods` find calls. `group_files_by_imports.py` says which files run together.
`settings_of_script_as_configs.py` reads the settings of a run from a script. `make_source_edits.py` changes a text and
leaves all else as it was. The package `symbolic_execution` runs a script without its libraries, for what it hands them.

The trade-off: Python's own `ast` and positions in the text, as ruff does it, instead of libcst or astroid; see
docs/lint.md for what that costs and saves. Inference follows values without a control-flow graph, so it says UNKNOWN
more often than a type checker would, and needs neither the user's environment nor the installed libraries.
"""
