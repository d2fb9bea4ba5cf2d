"""Options that several commands share, and the settings that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.spec.run import RunSpec

LEARN = ("assistant", "last", "completion", "all")
MASKS = ("contract", "generation-tags", "response-marker")
ENCODING = (
    "overflow",
    "packing",
    "content_specials",
    "on_error",
    "file_format",
    "loss_weights",
    "trainer",
    "record_root",
)
SETTINGS = (".yaml", ".yml", ".toml")
OF_RULES = ("select", "ignore", "fail_on", "allow_unjudged")


class LateChoice(click.ParamType[str]):
    """One of some names. Plug-ins add to them, so they are looked up when a command runs, not when help is printed."""

    def __init__(self, name: str, names: Callable[[], Iterable[str]]) -> None:
        self.name = name
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is; click's usual error where nothing is called so."""
        return str(click.Choice(tuple(self._names())).convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so."""
        return click.Choice(tuple(self._names())).shell_complete(ctx, param, incomplete)


def _format_names() -> Iterable[str]:
    from truetune.spec.row_formats import format_names

    return format_names()


FORMAT_HELP = (
    "Format of the rows: messages, sharegpt, alpaca, prompt-completion, text, preference, kto, or one"
    " of a plug-in. Found by the columns when not given."
)


def spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a run; each has its field in RunSpec, and in truetune.yaml."""
    options = [
        click.option("-t", "--tokenizer", metavar="DIR", help="Tokenizer folder, or a model of the local hub cache."),
        click.option("--model", metavar="DIR",
                     help="Folder of config.json and weights, where it is not the tokenizer's."),
        click.option("--data-format", "format", type=LateChoice("format", _format_names), metavar="FORMAT",
                     help=FORMAT_HELP),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", metavar="NAME", help="One of the tokenizer's chat templates, or a .jinja file."),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
        click.option("--learn", type=click.Choice(LEARN),
                     help="What is supervised: every assistant turn (default), the last, the completion, or all."),
        click.option("--no-reasoning", is_flag=True, help="Do not supervise reasoning."),
        click.option("--no-tool-calls", is_flag=True, help="Do not supervise tool calls."),
        click.option("--history", type=click.Choice(["as-served", "single"]),
                     help="One example per turn where the template rewrites history (as-served, default), or one "
                     "in all."),
        click.option("--mask-by", type=click.Choice(MASKS), help="How the trainer finds the supervised tokens."),
        click.option("--response-marker", metavar="TEXT",
                     help="The text before each answer, for a trainer that masks by it."),
        click.option("--append-eos", is_flag=True, default=None,
                     help="The trainer appends EOS to plain text (TRL does)."),
        click.option("--max-length", type=click.IntRange(min=1), metavar="TOKENS",
                     help="Longest example of the run, in tokens."),
        click.option("--config", metavar="FILE", help="Settings file; else truetune.yaml here, else [tool.truetune] in "
                     "pyproject.toml."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How rows are read and rendered, for a command that asks a finished model; `row_settings` takes them."""
    options = [
        click.option("--data-format", "format", type=LateChoice("format", _format_names), metavar="FORMAT",
                     help=FORMAT_HELP),
        click.option("--map", "pairs", multiple=True, metavar="OURS=THEIRS",
                     help="Column names: --map answer=output. Repeatable."),
        click.option("--template", metavar="NAME", help="One of the tokenizer's chat templates, or a .jinja file."),
        click.option("--template-kwarg", "variables", multiple=True, metavar="NAME=JSON",
                     help="Variable for the template: --template-kwarg enable_thinking=false. Repeatable."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def row_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings of RunSpec, with those on rules, taken out of a command's options. Raises UsageError."""
    given = {
        "map": dict(pairs(options.pop("pairs"), "--map")),
        "template_kwargs": {
            name: _value(name, text)
            for name, text in pairs(options.pop("variables"), "--template-kwarg")
        },
        **{name: options.pop(name) for name in ("format", "template", *OF_RULES)},
    }
    return {name: value for name, value in given.items() if value not in (None, (), {})}


def settings_of(
    options: dict[str, Any], *, quiet: bool = False, whole: bool = True
) -> tuple[RunSpec, Path | None]:
    """Command line over settings file (also that of the current folder), and the file.

    Not `whole`: of a file of the current folder, only what chooses rules. Raises SpecError or UsageError.
    """
    from truetune.spec.files import find_settings, spec_of

    config = options.pop("config")
    settings, source = find_settings(config, Path())
    if not whole and config is None:
        settings = {name: value for name, value in settings.items() if name in OF_RULES}
    learn = settings.get("learn", {})
    learn = {"what": learn} if isinstance(learn, str) else learn
    chosen = {"what": what} if (what := options.pop("learn")) else {}
    chosen |= {name: False for name in ("reasoning", "tool_calls") if options.pop(f"no_{name}")}
    encoding = {name: value for name in ENCODING if (value := options.pop(name, None)) is not None}
    variables = {
        name: _value(name, text)
        for name, text in pairs(options.pop("variables"), "--template-kwarg")
    }
    over = {
        "learn": chosen,
        "encode": encoding,
        "map": dict(pairs(options.pop("pairs"), "--map")),
        "template_kwargs": variables,
    }
    inner = {name: learn if name == "learn" else settings.get(name, {}) for name in over}
    given = {**{name: {**inner[name], **named} for name, named in over.items()}, **options}
    given = {name: value for name, value in given.items() if value not in (None, (), {})}
    spec = spec_of({**settings, **given}, "command line")
    named = {"data"} if click.get_current_context().params.get("paths") else set()
    named |= {name for name, value in options.items() if value not in (None, (), {})}
    named |= {name for name, mine in over.items() if inner[name].keys() <= mine.keys()}
    taken = [_told(name, value) for name, value in settings.items() if name not in named]
    if source is not None and taken and not quiet:
        from truetune.report.visible_text import visible

        click.echo(f"settings from {source}: {visible(', '.join(taken))}", err=True)
    return spec, source


def _told(name: str, value: Any) -> str:
    """Its value too, where that is short."""
    return (
        f"{name} {value}" if isinstance(value, (str, int, float)) and len(str(value)) < 40 else name
    )


def pairs(given: tuple[str, ...], option: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each NAME=VALUE of an option. Raises UsageError."""
    for pair in given:
        name, found, value = pair.partition("=")
        if not found:
            raise UsageError(f"{option} {pair}: expected NAME=VALUE")
        yield name, value


def _value(name: str, text: str) -> Any:
    """JSON, or else the text itself."""
    from truetune.parsing.json_reader import JSONDecodeError, parse_json
    from truetune.parsing.limits import FLAG

    if text in ("True", "False", "None"):
        raise UsageError(f"--template-kwarg {name}={text}: expected JSON (true, false or null)")
    try:
        return parse_json(text, FLAG, unique_keys=True, surrogates="refuse", exact_integers=True)
    except JSONDecodeError:
        return text
    except ValueError as error:
        raise UsageError(f"--template-kwarg {name}: {error}") from None


def run_of(options: dict[str, Any], *, quiet: bool = False) -> RunSpec:
    """`settings_of` for a command that needs data. Raises SpecError or UsageError."""
    if (
        len(options["data"]) == 1
        and options["config"] is None
        and Path(options["data"][0]).suffix in SETTINGS
    ):
        (options["config"],), options["data"] = options["data"], ()
    spec, _ = settings_of(options, quiet=quiet)
    if not spec.data:
        command = click.get_current_context().command_path
        raise UsageError(
            f"no data is named; give a file after `{command}`, or `data:` in truetune.yaml"
        )
    return spec
