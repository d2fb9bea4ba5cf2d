"""Options that several commands share, and reading the settings that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from truetune.cli.result_output import print_renamed_rules
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.settings.run_spec import RunSpec

LEARN_CHOICES = ("assistant", "last", "completion", "all")
MASK_CHOICES = ("contract", "generation-tags", "response-marker")
ENCODING_SETTINGS = (
    "overflow",
    "packing",
    "content_specials",
    "on_error",
    "file_format",
    "loss_weights",
    "trainer",
    "record_root",
)
SETTINGS_SUFFIXES = (".yaml", ".yml", ".toml")
RULE_SETTINGS = ("select", "ignore", "fail_on", "allow_unjudged")
"""Settings that choose rules and what their findings do to the exit code"""
MAX_PRINTED_VALUE = 40
"""Characters. A longer value of a settings file is named alone: the line on stderr has to stay one line (chosen)"""


class LateChoice(click.ParamType[str]):
    """A parameter type: one of some names. Plug-ins add to them, so they are looked up when a
    command runs, not when help is printed.
    """

    def __init__(
        self,
        name: str,
        names: Callable[[], Iterable[str]],
        also: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`names` gives the names; `also` says of other values whether they are taken too."""
        self.name = name
        self._names = names
        self._also = also

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is; click's usual error where there is no such name."""
        if self._also(str(value)):
            return str(value)
        return str(click.Choice(tuple(self._names())).convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so, for a shell."""
        return click.Choice(tuple(self._names())).shell_complete(ctx, param, incomplete)


def _format_names() -> Iterable[str]:
    """The names of all row formats, those of plug-ins included."""
    from truetune.settings.row_formats import format_names

    return format_names()


def _is_training_script_format(name: str) -> bool:
    """Is a format a training script, which says itself what its rows become?"""
    from truetune.settings.row_formats import is_script_named_as_format

    return is_script_named_as_format(name)


FORMAT_HELP = (
    "Format of the rows: messages, sharegpt, alpaca, prompt-completion, text, preference, kto, or one"
    " of a plug-in. Or a training script (.py, .ipynb): its own code is followed, never run, to see what"
    " it makes of the rows. Found by the columns when not given."
)
TEMPLATE_HELP = (
    "One of the tokenizer's chat templates, or a .jinja file. Default: `tool_use` for rows with"
    " tools, where the tokenizer has it, else `default`."
)


def add_spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a run; each has its field in RunSpec, and in truetune.yaml."""
    options = [
        click.option("-t", "--tokenizer", metavar="DIR", help="Tokenizer folder, or a model of the local hub cache."),
        click.option("--model", metavar="DIR",
                     help="Folder of config.json and weights (default: the tokenizer's)."),
        click.option("--data-format", "format", metavar="FORMAT",
                     type=LateChoice("format", _format_names, _is_training_script_format), help=FORMAT_HELP),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", metavar="NAME", help=TEMPLATE_HELP),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
        click.option("--learn", type=click.Choice(LEARN_CHOICES),
                     help="What is supervised: every assistant turn (default), the last, the completion, or all."),
        click.option("--no-reasoning", is_flag=True, help="Do not supervise reasoning."),
        click.option("--no-tool-calls", is_flag=True, help="Do not supervise tool calls."),
        click.option("--history", type=click.Choice(["as-served", "single"]),
                     help="One example per turn if the template rewrites history (as-served, default), or one "
                     "in all."),
        click.option("--mask-by", type=click.Choice(MASK_CHOICES), help="How the trainer finds the supervised tokens."),
        click.option("--response-marker", metavar="TEXT",
                     help="The text before each answer, for a trainer that masks by it."),
        click.option("--append-eos", is_flag=True, default=None,
                     help="The trainer appends EOS to plain text (TRL does)."),
        click.option("--max-length", type=click.IntRange(min=1), metavar="TOKENS",
                     help="Longest example of the run, in tokens."),
        click.option("--config", metavar="FILE", help="Settings file (default: truetune.yaml here, then "
                     "[tool.truetune] in pyproject.toml)."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def add_row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of how rows are read and rendered, for a command that asks a finished model;
    `take_row_settings` takes them.
    """
    options = [
        click.option("--data-format", "format", metavar="FORMAT",
                     type=LateChoice("format", _format_names, _is_training_script_format), help=FORMAT_HELP),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", metavar="NAME", help=TEMPLATE_HELP),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def drop_options_not_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: click passes None, or an empty tuple, for the others."""
    return {name: value for name, value in options.items() if value not in (None, (), {})}


def spec_of_options(options: Mapping[str, Any]) -> RunSpec:
    """The settings that a command line alone gives; no settings file is read. Raises SpecError."""
    from truetune.settings.read_truetune_settings import validate_settings

    spec = validate_settings(drop_options_not_given(options), "command line")
    print_renamed_rules((*spec.select, *spec.ignore))
    return spec


def take_row_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the settings on rows and rules out of a command's options.

    Args:
        options: The command's parameters; those of `add_row_options` and on rules are removed.

    Returns:
        Settings of RunSpec that were given.

    Raises:
        UsageError: For a pair that is not NAME=VALUE.
    """
    settings = {
        "map": dict(parse_name_value_pairs(options.pop("pairs"), "--map")),
        "template_kwargs": _take_template_variables(options),
    }
    for name in ("format", "template", *RULE_SETTINGS):
        settings[name] = options.pop(name)
    return drop_options_not_given(settings)


def _take_template_variables(options: dict[str, Any]) -> dict[str, Any]:
    """The values of --template-kwarg by name. Raises UsageError."""
    pairs = parse_name_value_pairs(options.pop("variables"), "--template-kwarg")
    return {name: _parse_json_or_text(name, text) for name, text in pairs}


def read_settings(
    options: dict[str, Any], *, quiet: bool = False, whole: bool = True
) -> tuple[RunSpec, Path | None]:
    """Read the settings file and lay the command line over it.

    The file is the one of --config, else that of the current folder. What it adds is said on stderr, so that nobody
    wonders where a setting comes from.

    Args:
        options: The parameters of `add_spec_options`; emptied of those that are no field of RunSpec.
        quiet: Say nothing about the file.
        whole: False takes from a file of the current folder only what chooses rules: the command is about something
            else than the run that the file describes.

    Returns:
        The settings, and the file that they were read from, if any.

    Raises:
        SpecError: For a file or a value that is not valid.
        UsageError: For a pair that is not NAME=VALUE.
    """
    from truetune.settings.read_truetune_settings import (
        find_own_settings_and_file,
        validate_settings,
    )

    config = options.pop("config")
    of_file, source = find_own_settings_and_file(config, Path())
    if not whole and config is None:
        of_file = {name: value for name, value in of_file.items() if name in RULE_SETTINGS}
    nested = _take_mapping_settings(options)
    inner = {name: _expand_short_learn_setting(name, of_file.get(name, {})) for name in nested}
    merged = {name: {**inner[name], **given} for name, given in nested.items()}
    spec = validate_settings(
        {**of_file, **drop_options_not_given({**merged, **options})}, "command line"
    )
    print_renamed_rules((*spec.select, *spec.ignore))
    if source is not None and not quiet:
        overridden = set(drop_options_not_given(options))
        overridden |= {name for name in nested if inner[name].keys() <= nested[name].keys()}
        if click.get_current_context().params.get("paths"):
            overridden.add("data")
        _print_settings_from_file(source, of_file, overridden)
    return spec, source


def _take_mapping_settings(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of RunSpec that are mappings, each with the entries that options give. Raises UsageError."""
    learn: dict[str, Any] = {}
    what = options.pop("learn")
    if what:
        learn["what"] = what
    for name in ("reasoning", "tool_calls"):
        if options.pop(f"no_{name}"):
            learn[name] = False
    encoding = {name: options.pop(name, None) for name in ENCODING_SETTINGS}
    return {
        "learn": learn,
        "encode": {name: value for name, value in encoding.items() if value is not None},
        "map": dict(parse_name_value_pairs(options.pop("pairs"), "--map")),
        "template_kwargs": _take_template_variables(options),
    }


def _expand_short_learn_setting(name: str, value: Any) -> Any:
    """`learn: last` is short for `learn: {what: last}`; anything else as it is, for RunSpec to judge."""
    return {"what": value} if name == "learn" and isinstance(value, str) else value


def _print_settings_from_file(
    source: Path, settings: Mapping[str, Any], overridden: set[str]
) -> None:
    """Name on stderr the settings that come from a file and were not overridden."""
    from truetune.report.visible_text import escape_invisible_characters

    used = [
        _setting_in_words(name, value) for name, value in settings.items() if name not in overridden
    ]
    if used:
        click.echo(
            f"settings from {source}: {escape_invisible_characters(', '.join(used))}", err=True
        )


def _setting_in_words(name: str, value: Any) -> str:
    """The name of a setting, with its value where that is short."""
    if isinstance(value, (str, int, float)) and len(str(value)) < MAX_PRINTED_VALUE:
        return f"{name} {value}"
    return name


def parse_name_value_pairs(given: tuple[str, ...], option: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each NAME=VALUE of an option. Raises UsageError."""
    for pair in given:
        name, equals_sign, value = pair.partition("=")
        if not equals_sign:
            raise UsageError(f"{option} {pair}: expected NAME=VALUE")
        yield name, value


def _parse_json_or_text(name: str, text: str) -> Any:
    """JSON, or else the text itself."""
    from truetune.parsing.input_limits import FLAG
    from truetune.parsing.parse_json_within_limits import JSONDecodeError, parse_json

    if text in ("True", "False", "None"):
        raise UsageError(f"--template-kwarg {name}={text}: expected JSON (true, false or null)")
    try:
        return parse_json(text, FLAG, unique_keys=True, surrogates="refuse", exact_integers=True)
    except JSONDecodeError:
        return text
    except ValueError as error:
        raise UsageError(f"--template-kwarg {name}: {error}") from None


def read_settings_of_run_with_data(options: dict[str, Any], *, quiet: bool = False) -> RunSpec:
    """`read_settings` for a command that needs data. Raises SpecError or UsageError."""
    data = options["data"]
    if len(data) == 1 and options["config"] is None and Path(data[0]).suffix in SETTINGS_SUFFIXES:
        # `truetune encode truetune.yaml`: the one path is the settings, which name the data.
        options["config"] = data[0]
        options["data"] = ()
    spec, _ = read_settings(options, quiet=quiet)
    if not spec.data:
        command = click.get_current_context().command_path
        raise UsageError(
            f"no data is named; give a file after `{command}`, or `data:` in truetune.yaml"
        )
    return spec
