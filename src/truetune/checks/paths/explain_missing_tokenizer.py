"""Why the tokenizer that settings or scripts name can't be used on this machine, and which one
scripts load.
"""

from __future__ import annotations

from collections.abc import Iterable

from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.data.script_rows.read_rows_given_to_trainer import tokenizer_name_of_script
from truetune.errors import SpecError, TemplateError, TokenizerError, TruetuneError
from truetune.render.find_tokenizer_folder import find_tokenizer_folder, lacks_tokenizer
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec


def why_tokenizer_is_missing(run: RunSpec, *, is_users: bool = False) -> str:
    """Why the tokenizer that settings or a script name can't be used; empty where it can.

    It is loaded, for a folder may be there and hold an adapter alone, other weights, or a broken
    file: whoever did not name it himself is told so, and everything else is still judged. One that
    the user names is loaded where it is used, and its error is his answer.
    """
    named = run.tokenizer or run.model
    if not named:
        return "the settings name none"
    try:
        folder = find_tokenizer_folder(named)
        if is_users:
            return ""
        load_tokenizer_and_template_of_run(run)
    except (TokenizerError, TemplateError, SpecError) as error:
        return without_advice_of_transformers(error)
    # Of a config.json alone transformers makes an empty tokenizer, with no word.
    return (
        f"{folder} contains no tokenizer file (tokenizer.json)" if lacks_tokenizer(folder) else ""
    )


def why_tokenizer_of_scripts_is_missing(seen: PathsCheck) -> str:
    """Why the one tokenizer that the training scripts load can't be used; empty if they load none,
    or several.
    """
    names = {tokenizer_name_of_script(script) for script in seen.training_scripts()}
    name = names.pop() if len(names) == 1 else None
    return why_tokenizer_is_missing(RunSpec(tokenizer=name)) if name else ""


def find_tokenizer_of_scripts(scripts: Iterable[str]) -> str | None:
    """The name of the tokenizer that all these scripts load; None if they load several, or if it
    can't be loaded here.
    """
    names = {tokenizer_name_of_script(script) for script in scripts}
    name = names.pop() if len(names) == 1 else None
    return None if name is None or why_tokenizer_is_missing(RunSpec(tokenizer=name)) else name


def without_advice_of_transformers(error: TruetuneError) -> str:
    """The first line of an error, without what transformers appends: its own advice after
    "Couldn't", on options that truetune has not.
    """
    return str(error).partition("\n")[0].partition(": Couldn't")[0]
