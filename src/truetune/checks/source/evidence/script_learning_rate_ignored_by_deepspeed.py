"""Finds DeepSpeed engines that train at the learning rate of their settings, where nothing reads
another rate of the script.

How it works: a call without an optimizer makes one from the `optimizer` block of its settings.
Those are followed to a dictionary of the code, or to the one JSON file that the code or its command
line names. The script's own rate is an option, a field of its settings or a constant that is named
like a rate; what reads it is searched in all files that run with the script.

The trade-off: whatever may put the rate into the settings (a subscript with one of their keys,
options that are handed to code which is not seen) makes the call no evidence, so some lost rates
are missed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_deepspeed_schedule_rate import peak_rate_of_schedule, positive_rate
from truetune.checks.findings import Case
from truetune.checks.read_settings_in_launch_files import (
    LocatedValue,
    first_set_value,
    read_document_in_folder_or_parents,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.settings.located_document import LocatedDocument
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import (
    option_name_of_expression,
    option_value_from_commands_by_name,
)
from truetune.source.parsed_source_file import Module

ENGINE = "deepspeed.initialize"
RATE_NAME = re.compile(
    r"(?:(?:peak|max|base|init|initial|target|optim|optimizer)_)?(?:lr|learning_?rate)", re.I
)
BLOCK_KEYS = ("optimizer", "scheduler")
"""Keys of the settings through which a script may write a rate"""
DEFAULT_RATE = 1e-3
"""What Adam, AdamW and Lamb take where the block names no rate (deepspeed/ops)"""
KNOWN_DEFAULTS = ("adam", "adamw", "lamb")
OPTIMIZER_POSITION, SCHEDULER_POSITION = 2, 5
"""Of `deepspeed.initialize(args, model, optimizer, model_parameters, training_data, lr_scheduler, ...)`"""
SHOWING_CALLS = re.compile(
    r"(?:^|[._])(?:print|pprint|log\w*|info|debug|warning|write|dumps?|vars|asdict|init|update|save\w*|Namespace)$"
)
"""Functions that show, log or store options, and set nothing by them"""


class RateOfSettings(NamedTuple):
    """The rate that an engine takes from its settings."""

    value: float
    file: str
    """Name of the file; empty where the settings stand in the code"""
    case: Case


class UnreadRate(NamedTuple):
    """A rate of the script that nothing reads."""

    name: str
    """`args.lr`, `LR`"""
    value: float
    case: Case


class EngineRate(NamedTuple):
    """An engine that trains at the rate of its settings, beside another rate of the script."""

    call: Call
    taken: RateOfSettings
    unread: UnreadRate


def engines_without_optimizer(module: Module) -> Iterator[Call]:
    """The calls of `deepspeed.initialize` that make their optimizer and schedule from the settings."""
    for call in module.calls(ENGINE):
        if call.lacks("optimizer", OPTIMIZER_POSITION) and call.lacks(
            "lr_scheduler", SCHEDULER_POSITION
        ):
            yield call


def find_engines_with_other_rate(module: Module) -> Iterator[EngineRate]:
    """Engines whose settings hold another rate than the script, where nothing reads the script's."""
    for call in engines_without_optimizer(module):
        config_argument = call.keywords.get("config") or call.keywords.get("config_params")
        if config_argument is None or _names_key_of_settings_rate(module):
            continue
        taken = _rate_of_engine_settings(module, config_argument)
        unread = next(_unread_rates(module), None) if taken is not None else None
        if taken is not None and unread is not None and taken.value != unread.value:
            yield EngineRate(call, taken, unread)


def _names_key_of_settings_rate(module: Module) -> bool:
    """Does any code spell a key of the settings by which a rate is set:
    `ds["optimizer"]["params"]["lr"] = args.lr`?
    """
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            # The groups of an optimizer have the key "lr" too: scripts print it, and what writes it sets the rate.
            if key in BLOCK_KEYS or (key == "lr" and isinstance(node.ctx, ast.Store)):
                return True
        for call in part.methods("update", "setdefault"):
            if any(key in ast.unparse(call.node) for key in BLOCK_KEYS):
                return True
    return False


def _rate_of_engine_settings(module: Module, expression: ast.expr) -> RateOfSettings | None:
    """The rate of the settings that an engine is given; None where they are not known or name none."""
    origins = [origin.node for origin in module.flow.origins(expression)]
    if len(origins) == 1 and isinstance(origins[0], ast.Dict):
        return _rate_in_dictionary(module, origins[0])
    document = _only_settings_document(module, expression)
    if document is None:
        return None
    rate = first_set_value(document, ("optimizer", "params", "lr"))
    schedule = peak_rate_of_schedule(document.value)
    if schedule is not None:
        peak = first_set_value(document, ("scheduler", "params", schedule.key)) or first_set_value(
            document, ("scheduler", "type")
        )
        return _rate_with_place(schedule.peak, peak)
    if rate is None:
        kind = first_set_value(document, ("optimizer", "type"))
        is_default = kind is not None and str(kind.value).lower() in KNOWN_DEFAULTS
        has_key = "lr" in str(document.value.get("optimizer"))
        return _rate_with_place(DEFAULT_RATE, kind) if is_default and not has_key else None
    return _rate_with_place(positive_rate(rate.value), rate)


def _rate_with_place(value: float | None, place: LocatedValue | None) -> RateOfSettings | None:
    """A rate with its place in a file; None where one of them is not known."""
    if value is None or place is None:
        return None
    case = Case(place.text, file=place.file, line=place.line)
    return RateOfSettings(value, Path(place.file).name, case)


def _rate_in_dictionary(module: Module, settings: ast.Dict) -> RateOfSettings | None:
    """The rate in settings that are written as a dictionary."""
    node: ast.expr | None = settings
    for key in ("optimizer", "params", "lr"):
        entries = module.flow.dict_entries_and_if_complete(node)[0] if node is not None else {}
        node = entries.get(key)
    if node is None or "scheduler" in module.flow.dict_entries_and_if_complete(settings)[0]:
        return None
    rate = positive_rate(module.flow.value(node))
    return None if rate is None else RateOfSettings(rate, "", case_of_node(module, node))


def _only_settings_document(module: Module, expression: ast.expr) -> LocatedDocument | None:
    """The one JSON file that the settings are read from; None where several take part, or none is
    there.
    """
    names = {
        name
        for node in backward_slice(module, expression)
        for name in [_file_named_by(module, node)]
        if name.endswith(".json")
    }
    folder = Path(module.path).parent
    return read_document_in_folder_or_parents(folder, names.pop()) if len(names) == 1 else None


def _file_named_by(module: Module, node: ast.AST) -> str:
    """The file that a text or an option of the command line names; empty for any other expression."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    option = option_name_of_expression(module, node)
    if option is None:
        return ""
    value = _option_value_by_command_or_default(module, option)
    return value if isinstance(value, str) else ""


def _option_value_by_command_or_default(module: Module, option: str) -> object:
    """What an option is: as a command beside the script gives it, else its default."""
    given_option = option_value_from_commands_by_name(module.path, option)
    if given_option is not None:
        return given_option.value
    defaults = [
        module.flow.value(default)
        for part in module.self_and_files_run_together
        for name, default, _ in _options_and_fields_with_defaults(part)
        if name == option and default is not None
    ]
    return defaults[0] if len(defaults) == 1 else None


def _options_and_fields_with_defaults(
    module: Module,
) -> Iterator[tuple[str, ast.expr | None, ast.AST]]:
    """The options of a file, and the fields of its classes: name, default and place."""
    for call in module.methods("add_argument"):
        texts = [str(module.flow.value(flag)) for flag in call.args]
        long = next((text for text in texts if text.startswith("--")), "")
        destination = call.keywords.get("dest")
        name = str(module.flow.value(destination)) if destination is not None else long.lstrip("-")
        yield name.replace("-", "_"), call.keywords.get("default"), call.node
    for field in module.nodes(ast.AnnAssign):
        is_field = isinstance(module.scopes.parent.get(field), ast.ClassDef)
        if is_field and isinstance(field.target, ast.Name):
            default = field.value
            if isinstance(default, ast.Call):
                default = module.flow.call(default).keywords.get("default")
            yield field.target.id, default, field


def _unread_rates(module: Module) -> Iterator[UnreadRate]:
    """The rates of a script that nothing reads; none where two options may be meant."""
    found = [
        (part, name, node)
        for part in module.self_and_files_run_together
        for name, _, node in _options_and_fields_with_defaults(part)
        if RATE_NAME.fullmatch(name)
    ]
    if len(found) == 1:
        part, name, node = found[0]
        # A rate of 0 is none: scripts mean "that of the settings" by it.
        rate = positive_rate(_option_value_by_command_or_default(module, name))
        if (
            rate is not None
            and not _is_option_read(module, name)
            and not _options_escape_as_whole(module)
        ):
            yield UnreadRate(f"--{name}", rate, _place_of_option_value(module, part, name, node))
    elif not found:
        yield from _unread_rate_constants(module)
        yield from _unread_rates_of_settings_file(module)


def _unread_rates_of_settings_file(module: Module) -> Iterator[UnreadRate]:
    """The rates of a settings file that the script reads, at the top of that file, which no code
    takes out: `lr: 1e-5`.
    """
    files = module.flow.settings_files
    for call in module.all_calls:
        settings = files.settings_read_by_call(module.flow, call.node)
        if not isinstance(settings, ast.Dict):
            continue
        for key, value in zip(settings.keys, settings.values, strict=True):
            name = str(key.value) if isinstance(key, ast.Constant) else ""
            rate = positive_rate(module.flow.value(value)) if RATE_NAME.fullmatch(name) else None
            if (
                rate is None
                or _is_option_read(module, name)
                or _options_escape_as_whole(module, settings)
            ):
                continue
            yield UnreadRate(f"{name} of the settings", rate, case_of_node(module, value))


def _place_of_option_value(module: Module, part: Module, name: str, node: ast.AST) -> Case:
    """The place that gives an option its rate: a command, else the code."""
    given_option = option_value_from_commands_by_name(module.path, name)
    if given_option is not None:
        return Case(
            f"--{name} {given_option.value}", file=given_option.file, line=given_option.line
        )
    return case_of_node(part, node)


def _unread_rate_constants(module: Module) -> Iterator[UnreadRate]:
    """Constants for a rate at the top of a file that no code reads: `LR = 1e-5`."""
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Name) or not RATE_NAME.fullmatch(target.id):
            continue
        rate = positive_rate(module.flow.value(node.value))
        reads = [
            read
            for part in module.self_and_files_run_together
            for read in part.name_reads.get(target.id, ())
        ]
        if rate is not None and all(_is_only_shown(module, read) for read in reads):
            yield UnreadRate(target.id, rate, case_of_node(module, node))


def _is_option_read(module: Module, name: str) -> bool:
    """May any code read the option: as an attribute, a key, or by its name as a text?"""
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Attribute):
            if node.attr == name and not _is_only_shown(part, node):
                return True
        for text in part.nodes(ast.Constant):
            around = part.scopes.parent.get(text) if text.value == name else None
            if not isinstance(around, ast.Subscript | ast.Call):
                continue
            # The groups of an optimizer have a key of this name: what they hold is no option.
            if "param_groups" not in ast.unparse(around) and not _is_only_shown(part, text):
                return True
    return False


def _options_escape_as_whole(module: Module, settings: ast.Dict | None = None) -> bool:
    """Are the options, or settings, as a whole given to code that is not seen, or laid out as
    arguments?
    """
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Name):
            if not isinstance(node.ctx, ast.Load) or not _holds_all_options(part, node, settings):
                continue
            around = part.scopes.parent.get(node)
            around = part.scopes.parent.get(around) if isinstance(around, ast.keyword) else around
            if isinstance(around, ast.Call) and not _callee_is_engine_or_seen(part, around):
                return True
    return False


def _holds_all_options(module: Module, node: ast.Name, settings: ast.Dict | None) -> bool:
    """Is it what parsed the command line, or what a file of settings holds, as a whole?"""
    if settings is not None:
        return any(origin.node is settings for origin in module.flow.origins(node))
    return any(
        isinstance(origin.node, ast.Call)
        and not origin.path
        and isinstance(origin.node.func, ast.Attribute)
        and origin.node.func.attr
        in ("parse_args", "parse_known_args", "parse_args_into_dataclasses")
        for origin in module.flow.origins(node)
    )


def _callee_is_engine_or_seen(module: Module, call: ast.Call) -> bool:
    """Is the function that takes the options the engine, one of these files, or one that only shows
    them?
    """
    text = ast.unparse(call.func)
    # `vars(args)` gives them all; what takes that decides.
    if text in ("vars", "asdict", "dataclasses.asdict"):
        return _is_only_shown(module, call)
    if module.flow.name(call.func) == ENGINE or SHOWING_CALLS.search(text):
        return True
    return module.flow.function_that_expression_names(call.func) is not None


def _is_only_shown(module: Module, node: ast.AST) -> bool:
    """Does a value only stand in what is printed, logged or stored?"""
    calls = [around for around in module.parents(node) if isinstance(around, ast.Call)]
    statement = module.statement(node)
    inside = {id(part) for part in ast.walk(statement)} if statement is not None else set()
    return any(
        id(call) in inside and SHOWING_CALLS.search(ast.unparse(call.func))
        for call in calls
        if ast.unparse(call.func) != "vars"
    )
