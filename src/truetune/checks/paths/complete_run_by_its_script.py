"""Completes a run by the script that trains its files: the tokenizer, the evaluation rows, and how
it shapes the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from truetune.checks.judge_token_ids_made_by_script import make_script_tokenizer
from truetune.checks.judgement import NotJudged
from truetune.checks.paths.explain_missing_tokenizer import find_tokenizer_of_scripts
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Subject
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.script_rows.find_row_shaping_script import ShapingScript, find_shaping_script
from truetune.data.script_rows.read_rows_given_to_trainer import (
    MAX_FOLLOWED_ROWS,
    ScriptRows,
    use_tokenizer_for_script,
)
from truetune.errors import TruetuneError, format_name_list
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec


def shape_run_by_script(run: RunSpec, seen: PathsCheck) -> RunSpec:
    """The run with what the script that trains its files says of them: tokenizer, evaluation rows,
    and how it shapes the rows, if that is not as they stand.
    """
    if run.data and run.format is not None and is_script_named_as_format(run.format):
        _give_script_tokenizer_of_run(run.format, run)
        return run
    if not run.data or run.format is not None or run.map:
        return run
    scripts = seen.training_scripts()
    update = _give_scripts_a_tokenizer(scripts, run)
    shaping = find_shaping_script(scripts, run.data)
    return run if shaping is None else _with_rows_of_script(run, shaping, update, seen)


def _with_rows_of_script(
    run: RunSpec, shaping: ShapingScript, update: dict[str, object], seen: PathsCheck
) -> RunSpec:
    """The run with `update`, the evaluation rows of the script, and its rows if it changes them."""
    rows = shaping.rows
    if not run.eval_data and rows.evaluation:
        update["eval_data"] = rows.evaluation_files
        update["data"] = rows.training_files
    if shaping.differs:
        update["format"] = rows.script
        update["data"] = rows.training_files
        seen.subjects.append(Subject("rows of a script", rows.script, shaping.facts()))
        seen.rows_of_scripts = seen.own_prompt = False
    elif seen.rows_of_scripts:
        # The script was followed to its trainer, and gives it these rows as they stand.
        seen.own_prompt = False
    if "data" in update:
        seen.add_not_judged(*_rows_left_unjudged_beside_script_rows(run, rows))
    return run.model_copy(update=update)


def _give_scripts_a_tokenizer(scripts: Sequence[str], run: RunSpec) -> dict[str, object]:
    """Let scripts be followed with the run's tokenizer, or with the one that they load.

    Returns the settings that the run lacks: `tokenizer`, if the scripts name it.
    """
    update: dict[str, object] = {}
    name = (
        find_tokenizer_of_scripts(scripts) if run.tokenizer is None and run.model is None else None
    )
    if name is not None:
        update["tokenizer"] = name
    with_tokenizer = run.model_copy(update=update)
    for script in scripts:
        _give_script_tokenizer_of_run(script, with_tokenizer)
    return update


def _give_script_tokenizer_of_run(script: str, run: RunSpec) -> None:
    """Let a script be followed with the tokenizer of the run; with none if it can't be used, which
    the check reports.
    """
    try:
        tokenizer = make_script_tokenizer(load_tokenizer_and_template_of_run(run))
    except TruetuneError:
        tokenizer = None
    use_tokenizer_for_script(script, tokenizer)


def _rows_left_unjudged_beside_script_rows(run: RunSpec, rows: ScriptRows) -> Iterator[NotJudged]:
    """The rows that are not judged if those of a script are: of other files, and beyond the limit."""
    others = [
        Path(str(source.path))
        for source in find_data_files_of_paths(run.data)
        if rows.rows_of_file(Path(str(source.path))) is None
    ]
    if others:
        why = f"{rows.script} does not train on them: {format_name_list([path.name for path in others])}"
        yield NotJudged("other rows", why, unlock="check them separately", asked=False)
    if rows.is_cut:
        why = f"only the first {MAX_FOLLOWED_ROWS:,} rows of a file are followed through the script"
        yield NotJudged("the other rows", why, asked=False)
