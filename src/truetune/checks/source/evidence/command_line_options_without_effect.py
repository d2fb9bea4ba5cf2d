"""Finds options of a script's command line that change nothing, or can't be switched off.

How it works: argparse calls `type=bool` with the text that is given, and each text but the empty one is true. And an
option, or a field of a class that HfArgumentParser fills, whose name nothing reads has no effect.

The trade-off: an option counts as read wherever its name stands behind a dot or in a text, in the file or one that runs
with it, and wherever all options go somewhere as a whole (`vars(args)`, a function of another file). Only options that
say what is trained, asked or kept are judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.names_read_or_spelled_in_files import (
    is_name_read_or_spelled,
)
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.find_command_line_option_values import (
    PARSING_METHODS,
    option_value_from_commands_by_name,
)
from truetune.source.parsed_source_file import Module

SETTING = re.compile(
    r"(^|_)(lr|learning_rate|weight_decay|warmup|warm_up|seed|epochs?|batch|accum\w*|dropout|lora|alpha|rank|r|clip"
    r"|max_grad_norm|grad_norm|temperature|top_p|top_k|beta|scheduler|schedule|bf16|fp16|checkpointing|max_steps"
    r"|patience|smoothing|shuffle|max_length|max_len|max_seq_length|seq_len\w*|max_new_tokens|adam|betas|eps|epsilon"
    r"|freeze|packing|num_beams|resume\w*|kl|gamma|margin)(_|$)",
    re.I,
)
"""Names of options that change a training or its answers"""
OF_LAUNCHER = re.compile(r"(local|node|global|world|machine)_?rank", re.I)
"""Options that a launcher gives to each script, whether it reads them or not"""
SHOWING = frozenset(
    (
        "print",
        "pprint",
        "str",
        "repr",
        "info",
        "debug",
        "dump",
        "dumps",
        "log",
        "init",
        "write",
        "type",
    )
    + ("log_hyperparameters", "init_trackers", "add_hparams", "save")
)
"""Calls that only write all options down"""
OFF = frozenset(("false", "0", "no", "off", "none"))


class CommandLineOptionWithoutEffect(NamedTuple):
    """An option that does not do what it says."""

    place: ast.AST
    """Where it is added, or the field of the class"""
    name: str
    is_always_true: bool
    """Each text that is given for it is true; else nothing reads it"""
    given: str
    """A command that means to switch it off; empty where its default is what can't be changed"""


def options_of_command_line(module: Module) -> Iterator[tuple[str, Call]]:
    """The options that a file adds to its command line, each with the call that adds it."""
    for call in module.methods("add_argument"):
        texts = [one.value for one in call.args if isinstance(one, ast.Constant)]
        names = [one for one in texts if isinstance(one, str) and one.startswith("--")]
        named = module.flow.value(call.keywords.get("dest"))
        if names:
            plain = names[0].lstrip("-").replace("-", "_")
            yield (named if isinstance(named, str) else plain), call


def options_always_true(module: Module) -> Iterator[CommandLineOptionWithoutEffect]:
    """The options of `type=bool` that can't be switched off, or that a command tries to switch off.

    Args:
        module: A file that is judged.

    Yields:
        Each option once.
    """
    for name, call in options_of_command_line(module):
        kind = call.keywords.get("type")
        if not (isinstance(kind, ast.Name) and kind.id == "bool") or "nargs" in call.keywords:
            continue
        given = _place_of_command_switching_option_off(module, name)
        if given or module.flow.value(call.keywords.get("default")) is True:
            yield CommandLineOptionWithoutEffect(call.node, name, True, given)


def _place_of_command_switching_option_off(module: Module, name: str) -> str:
    """A place whose command gives a no for an option: `run.sh:3`; empty where none does."""
    given_option = option_value_from_commands_by_name(module.path, name)
    if given_option is not None and str(given_option.value).lower() in OFF:
        return f"{given_option.file.rpartition('/')[2]}:{given_option.line}"
    return ""


def options_never_read(module: Module) -> Iterator[CommandLineOptionWithoutEffect]:
    """The options of a training or an evaluation that nothing reads.

    Args:
        module: A file that is judged.

    Yields:
        Each option once.
    """
    if not any(module.methods(*PARSING_METHODS)) or _are_parsed_options_used_as_a_whole(module):
        return
    options: list[tuple[str, ast.AST]] = [*_fields_filled_by_hf_argument_parser(module)]
    if any(module.methods(*PARSING_METHODS[:2])):
        options += [(name, call.node) for name, call in options_of_command_line(module)]
    for name, place in options:
        is_setting = SETTING.search(name) and not OF_LAUNCHER.search(name)
        if is_setting and not is_name_read_or_spelled(module, name):
            yield CommandLineOptionWithoutEffect(place, name, False, "")


def _fields_filled_by_hf_argument_parser(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The fields of the classes without a base that HfArgumentParser fills from the command line."""
    for parser in module.calls("transformers.HfArgumentParser"):
        dataclass_types_argument = parser.argument(0, "dataclass_types")
        listed = (
            dataclass_types_argument.elts
            if isinstance(dataclass_types_argument, ast.Tuple | ast.List)
            else [dataclass_types_argument]
        )
        names = {one.id for one in listed if isinstance(one, ast.Name)}
        for owner in module.nodes(ast.ClassDef):
            # A base of a library reads the fields that it knows.
            for field in owner.body if owner.name in names and not owner.bases else ():
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id, field


def _are_parsed_options_used_as_a_whole(module: Module) -> bool:
    """Do the parsed options go somewhere as a whole, where each may be read?"""
    for part in module.self_and_files_run_together:
        for name in ("vars", "getattr", "setattr", "asdict", "hasattr"):
            if any(
                _is_vars_result_used_beyond_printing(part, call)
                for call in part.calls(name, f"*.{name}")
            ):
                return True
        if "__dict__" in part.text or "_get_kwargs" in part.text:
            return True
    return any(
        _do_options_leave_known_files(module, name) for name in _names_of_parsed_options(module)
    )


def _is_vars_result_used_beyond_printing(module: Module, call: Call) -> bool:
    """Is the result of `vars(args)` more than written down?"""
    for up in module.parents(call.node):
        if isinstance(up, ast.Call) and last_name_of_called(up) in SHOWING:
            return False
        if isinstance(up, ast.stmt):
            return True
    return True


def _names_of_parsed_options(module: Module) -> Iterator[ast.Name]:
    """The places that read a name which the parsed options stand under."""
    parsed = {call.node for call in module.methods(*PARSING_METHODS)}
    for reads in module.name_reads.values():
        for read in reads:
            origins = {origin.node for origin in module.flow.origins(read)}
            if origins & parsed:
                yield read


def _do_options_leave_known_files(module: Module, read: ast.Name) -> bool:
    """Do the options go to a function that is not among the files, or into a larger value?"""
    around = module.scopes.parent.get(read)
    if isinstance(around, ast.Attribute | ast.Return | ast.Assign | ast.Expr | ast.FormattedValue):
        return False
    if isinstance(around, ast.keyword):
        around = module.scopes.parent.get(around)
    if not isinstance(around, ast.Call):
        return True
    if last_name_of_called(around) in (*SHOWING, "vars"):
        return False
    return module.flow.function_called(around.func) is None
