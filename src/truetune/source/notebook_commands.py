"""Reads the shell commands of a notebook: lines that begin with `!`, and cells of `%%bash`.

Everything but the commands is blanked out, so the reader of shell scripts reads what is left and its lines are those
of the notebook. What the notebook saved is handed on with them: a server that it starts serves that model.
"""

from __future__ import annotations

import re
from dataclasses import replace

from truetune.parsing.shell_commands import CommandFile, parse_command_file
from truetune.source.notebook_code_cells import blank_out_text
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import find_only_plainly_named_model

# The first line of a cell whose other lines are a shell script.
SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|shell)\b[^\n]*")
SAVING_METHODS = ("save_pretrained", "save_pretrained_merged", "save_model")
"""Methods of models and trainers whose first argument is a folder"""


def read_notebook_commands(module: Module) -> CommandFile | None:
    """The commands with their lines in the .ipynb file; None where the module is no notebook, or starts none."""
    if not any("!" in cell.text or "%%" in cell.text for cell in module.cells):
        return None
    text = "".join(_blank_out_all_but_commands(cell.text) + "\n" for cell in module.cells)
    file = parse_command_file(text, module.path)
    if not file.commands:
        return None
    commands = tuple(
        replace(
            command, line=module.line_and_column_in_file(module.lines.starts[command.line - 1])[0]
        )
        for command in file.commands
    )
    return replace(file, commands=commands, saved_from=_loaded_model_name_by_saved_folder(module))


def _blank_out_all_but_commands(cell: str) -> str:
    """The text of a cell with nothing but its commands left, each at its place."""
    begin = SHELL_CELL.match(cell)
    if begin is not None:
        return blank_out_text(begin[0]) + cell[begin.end() :]
    lines, continues = [], False
    for line in cell.split("\n"):
        is_command = continues or line.lstrip().startswith("!")
        if is_command and not continues:
            lines.append(line.replace("!", " ", 1))
        else:
            lines.append(line if is_command else blank_out_text(line))
        continues = is_command and line.endswith("\\")
    return "\n".join(lines)


def _loaded_model_name_by_saved_folder(module: Module) -> dict[str, str]:
    """The folders that the notebook saves its one model to, with the name that this was loaded under."""
    name = find_only_plainly_named_model(module)
    if name is None:
        return {}
    calls = (call for method in SAVING_METHODS for call in module.methods(method))
    folders = (module.flow.value(call.args[0]) for call in calls if call.args)
    return {folder: name for folder in folders if isinstance(folder, str)}
