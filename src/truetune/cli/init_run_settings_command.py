"""`truetune init`: write the settings of a run, with values proposed from the data and the model.

It asks at a terminal only. Settings belong to the user once they are written: only --force replaces them.
"""

from __future__ import annotations

import sys
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from truetune.cli.help_layout import Command
from truetune.cli.result_output import (
    add_format_options,
    files_named_by_settings,
    input_files_named_by_parameters,
    make_console,
    print_json,
    quiet_option,
)
from truetune.data.guard_output_file import FileForm, refuse_unsafe_output_file, write_output_file
from truetune.data.guard_output_folder import Output, refuse_overlapping_outputs
from truetune.errors import UsageError

if TYPE_CHECKING:
    from truetune.settings.run_spec import RunSpec
    from truetune.training.propose_settings import StartingSettings

SUFFIXES = (".yaml", ".yml")
RECIPES = ("sft", "lora", "qlora", "dora", "dpo", "orpo", "kto", "grpo")


@click.command(cls=Command, short_help="Write a commented truetune.yaml for `truetune train`.")
@click.argument("file", default="truetune.yaml", metavar="[FILE]")
@click.option(
    "--recipe",
    type=click.Choice(RECIPES),
    help="What is trained, and how (default: what the rows are for).",
)
@click.option(
    "--model", metavar="DIR", help="Folder of the model, or its name in the local hub cache."
)
@click.option(
    "-t", "--tokenizer", metavar="DIR", help="Folder of the tokenizer (default: the model's)."
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Training data: files, folders, globs. Repeatable.",
)
@click.option("--eval-data", multiple=True, metavar="PATH", help="Rows to evaluate on. Repeatable.")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    help="Folder for what the run writes (default: outputs).",
)
@click.option(
    "--reward",
    "rewards",
    multiple=True,
    metavar="NAME",
    help="grpo: FILE.py:FUNCTION, MODULE:FUNCTION, `exact` or `agrees:PARSER` (default: what fits the answers of the"
    " rows). Repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--schema",
    metavar="FILE",
    help="Write only the JSON schema of the settings, for editors (-: print it).",
)
@add_format_options()
@quiet_option
def init(
    file: str,
    recipe: str | None,
    model: str | None,
    tokenizer: str | None,
    data: tuple[str, ...],
    eval_data: tuple[str, ...],
    out: str | None,
    rewards: tuple[str, ...],
    yes: bool,
    force: bool,
    schema: str | None,
    output_format: str,
    quiet: bool,
) -> int:
    """Write FILE (truetune.yaml): settings for `truetune train`, each with a line on what it means.

    Asks for what its options do not say, looks at the data and at the model's config.json, and proposes values.
    truetune.schema.json is written beside FILE, for editors.

    \b
    Examples:
      truetune init
      truetune init --recipe lora --model path/to/model --data chats.jsonl --yes
      truetune init dpo.yaml --recipe dpo --model path/to/model --data pairs.jsonl -o outputs/dpo
      truetune init --recipe grpo --model path/to/model --data problems.jsonl --reward rewards.py:right
    """
    from truetune.settings.settings_schema import SCHEMA_NAME, settings_schema_text
    from truetune.training.settings_as_explained_yaml import render_settings_yaml

    if schema is not None:
        if schema == "-":
            click.echo(settings_schema_text(), nl=False)
        else:
            _write_schema_file(Path(schema), settings_schema_text())
        return 0
    path, beside = Path(file), Path(file).with_name(SCHEMA_NAME)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{file}: settings are written as YAML; name a file that ends in"
            f" {' or '.join(SUFFIXES)} (init --schema {file} writes the schema alone)"
        )
    refuse_overlapping_outputs(
        [Output("FILE", path), Output(f"the schema beside {path.name}", beside)]
    )
    refuse_unsafe_output_file(
        path, _form_of_replaceable_settings_file(force=force), input_files_named_by_parameters()
    )
    refuse_unsafe_output_file(
        beside, _form_of_replaceable_schema_file(), input_files_named_by_parameters()
    )
    ask = sys.stdin.isatty() and not yes
    start = _survey_data_and_propose_settings(
        _complete_by_questions(model, tokenizer, data, eval_data, out, ask=ask),
        recipe,
        rewards,
        ask=ask,
    )
    body = render_settings_yaml(start, path.parent, SCHEMA_NAME).encode()
    write_output_file(
        path,
        body,
        _form_of_replaceable_settings_file(force=force),
        [*input_files_named_by_parameters(), *files_named_by_settings(start.settings)],
    )
    _write_schema_file(beside, settings_schema_text())
    if output_format == "json":
        print_json(
            "init",
            {
                "file": str(path),
                "schema_file": str(beside),
                "recipe": start.name,
                "found": start.summary_lines,
                "notes": start.notes,
            },
        )
    elif quiet:
        click.echo(path)
    else:
        _print_proposal(start, path)
    return 0


def _complete_by_questions(
    model: str | None,
    tokenizer: str | None,
    data: tuple[str, ...],
    eval_data: tuple[str, ...],
    out: str | None,
    *,
    ask: bool,
) -> RunSpec:
    """The settings that the command line names, completed by questions on a terminal."""
    from truetune.settings.read_truetune_settings import validate_settings

    if ask:
        model = model or click.prompt("Model (a folder, or a name in the local hub cache)")
        data = data or (click.prompt("Data (a file, a folder or a glob)"),)
        out = out or click.prompt("Folder for what the run writes", default="outputs")
    missing = [option for option, value in (("--model", model), ("--data", data)) if not value]
    if missing:
        raise UsageError(f"{' and '.join(missing)}: not given, and there is no terminal to ask at")
    model, tokenizer = expanduser(str(model)), expanduser(str(tokenizer or model))
    files = {"data": tuple(map(expanduser, data)), "eval_data": tuple(map(expanduser, eval_data))}
    training = {} if out is None else {"output_dir": out}
    return validate_settings(
        {"model": model, "tokenizer": tokenizer, **files, "training": training}, "command line"
    )


def _survey_data_and_propose_settings(
    spec: RunSpec, recipe: str | None, rewards: tuple[str, ...], *, ask: bool
) -> StartingSettings:
    """Survey the data and the model, and propose settings."""
    from truetune.memory.read_machine import read_machine
    from truetune.training.propose_settings import (
        RECIPE_MEANINGS,
        propose_recipe_name,
        propose_settings,
    )
    from truetune.training.survey_data_and_model_for_init import survey_data_and_model_config

    data_survey = survey_data_and_model_config(spec)
    if recipe is None and ask:
        click.echo("\n".join(f"  {name:<6} {means}" for name, means in RECIPE_MEANINGS.items()))
        recipe = click.prompt(
            "Recipe", type=click.Choice(RECIPES), default=propose_recipe_name(data_survey)
        )
    here = read_machine()
    gpus = [here.gpus[i] for i in here.visible_gpu_indices if i < len(here.gpus)]
    return propose_settings(
        spec,
        data_survey,
        recipe or propose_recipe_name(data_survey),
        gpu=bool(gpus),
        gpu_memory=gpus[0].memory if gpus else None,
        rewards=rewards,
    )


def _form_of_replaceable_schema_file() -> FileForm:
    """Tells which file is a schema that truetune wrote, and may be replaced."""
    from truetune.settings.settings_schema import is_truetune_settings_schema_file

    return FileForm("the schema of truetune's settings", is_truetune_settings_schema_file)


def _form_of_replaceable_settings_file(*, force: bool) -> FileForm:
    """Tells whether a settings file may be replaced: it is the user's once it is written, so only
    with --force.
    """
    return FileForm("to be overwritten without --force", lambda path: force)


def _write_schema_file(path: Path, text: str) -> None:
    """Write the schema of the settings, for editors."""
    write_output_file(
        path,
        text.encode("utf-8"),
        _form_of_replaceable_schema_file(),
        input_files_named_by_parameters(),
    )


def _print_proposal(start: StartingSettings, path: Path) -> None:
    """Print what was found and proposed, and how to continue."""
    terminal = make_console()
    for line in (*start.summary_lines, *(f"note: {note}" for note in start.notes)):
        terminal.print(line, soft_wrap=True)
    terminal.print(
        f"wrote {path}; next: `truetune check {path}`, `truetune train {path}`", soft_wrap=True
    )
