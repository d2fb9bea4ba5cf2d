"""Judges the rows and the tokenizer of the run that the paths describe, whatever form the rows
have.

Rows may be token ids already, ids that a script makes, or texts that are rendered: each form has
its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from truetune.checks.check_data import Progress
from truetune.checks.inspect_retrieval_rows import inspect_retrieval_rows, retrieval_layout
from truetune.checks.inspect_tokenized import TOKENIZED_KIND as TOKENIZED
from truetune.checks.inspect_tokenized import inspect_tokenized, is_tokenized
from truetune.checks.judge_predictions_of_teacher import judge_predictions_of_teacher
from truetune.checks.judge_rows_without_tokenizer import judge_rows_by_text_rules
from truetune.checks.judge_token_ids_made_by_script import (
    inspect_ids_made_by_script,
    judge_columns_without_tokenizer,
    judge_labels_of_classifier,
)
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.paths.complete_run_by_its_script import shape_run_by_script
from truetune.checks.paths.explain_missing_tokenizer import find_tokenizer_of_scripts
from truetune.checks.paths.judge_held_out_rows import (
    judge_rows_and_held_out,
    report_found_evaluation_rows,
)
from truetune.checks.paths.judge_rows_with_tokenizer_and_template import (
    columns_read_by_paths,
    judge_rows,
    tokens_added_by_paths,
)
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Report, Subject
from truetune.checks.split_training_and_held_out_files_by_name import (
    split_training_and_held_out_files,
)
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.retrieval_rows import Layout
from truetune.data.script_rows.find_row_shaping_script import training_scripts
from truetune.errors import DataError, TokenizerError, TruetuneError, format_name_list
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_trainer_arguments import template_has_generation_tags
from truetune.source.find_source_files import find_source_files


def judge_run_or_note_unreadable(
    run: RunSpec | None, seen: PathsCheck, named: Sequence[str], progress: Progress | None
) -> Report | None:
    """As `_judge_run`; rows that can't be read are not judged, and hide nothing that was found
    beside.

    Raises a TruetuneError if nothing else was judged, or if the rows were named and nothing was found.
    """
    if run is None:
        return None
    try:
        return _judge_run(run, seen, progress)
    except DataError as error:
        # A folder is named for all that it holds; a file is named for its rows.
        files_named = [path for path in run.data if path in named and Path(path).is_file()]
        has_findings = any(part.findings for part in seen.judged)
        if not seen.subjects or (files_named and not has_findings):
            raise
        files = format_name_list([Path(path).name or path for path in run.data])
        seen.add_not_judged(NotJudged(f"the rows of {files}", str(error)))
        return None


def _judge_run(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> Report | None:
    """Judge the data and the tokenizer of a run; None if none of it can be judged.

    Rows that are token ids already have rules of their own. If there are both kinds, the report is
    that on the other rows, and what was found in the ids is added to `seen`.
    """
    run, of_texts = _judge_retrieval_rows(run, seen)
    return _judge_rows_of_chats(run, seen, progress) if of_texts is None else of_texts


def _judge_rows_of_chats(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """Judge the rows of a run that trains a model to write text: texts, chats, pairs or token ids."""
    run = _take_mask_from_generation_tags(shape_run_by_script(run, seen), seen)
    report_found_evaluation_rows(run, seen)
    lacking = _not_judged_absent_model(run)
    if lacking is not None:
        seen.add_not_judged(lacking)
        run = run.model_copy(update={"model": None})
    tokenized = [path for path in run.data if is_tokenized(path, run)]
    seen.judged += [judge_predictions_of_teacher(path, run) for path in tokenized]
    if not tokenized:
        of_script = _judge_ids_made_by_script(run, seen, progress)
        return judge_rows_and_held_out(run, seen, progress) if of_script is None else of_script
    of_ids = _judge_token_rows(run, tokenized, seen, progress)
    rest = tuple(path for path in run.data if path not in tokenized)
    if not rest:
        return of_ids
    return _judge_rows_beside_ids(run.model_copy(update={"data": rest}), of_ids, seen, progress)


def _judge_rows_beside_ids(
    run: RunSpec, of_ids: Report | None, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """Judge the rows of a run that has token ids beside them; the report on the ids is added to `seen`."""
    of_rows = judge_rows(run, seen, progress)
    if of_rows is None:
        return of_ids
    if of_ids is not None:
        seen.add(of_ids)
    return of_rows


def _judge_retrieval_rows(run: RunSpec, seen: PathsCheck) -> tuple[RunSpec, Report | None]:
    """Judge the rows that train an embedding model or a reranker, by the rules on those.

    Returns:
        The run without these rows, and the report on them. None if there are none, or if there are other rows: then
        what was found is added to `seen`.
    """
    run = _with_files_of_retrieval_folders(run)
    layouts = {path: retrieval_layout(path, run) for path in (*run.data, *run.eval_data)}
    reports = list(_reports_on_retrieval_rows(run, layouts))
    if not reports:
        return run, None
    rest = run.model_copy(
        update={
            "data": _paths_of_layout(run.data, layouts, None),
            "eval_data": _paths_of_layout(run.eval_data, layouts, None),
        }
    )
    main_report = None if rest.data else reports.pop(0)
    for report in reports:
        seen.add(report)
    return rest, main_report


def _reports_on_retrieval_rows(
    run: RunSpec, layouts: Mapping[str, Layout | None]
) -> Iterator[Report]:
    """A report on the rows of each layout."""
    for layout in dict.fromkeys(layouts.values()):
        trained = _paths_of_layout(run.data, layouts, layout)
        if layout is not None and trained:
            held_out = _paths_of_layout(run.eval_data, layouts, layout)
            yield inspect_retrieval_rows(trained, layout, run, held_out)


def _paths_of_layout(
    paths: Sequence[str], layouts: Mapping[str, Layout | None], layout: Layout | None
) -> tuple[str, ...]:
    """The paths whose rows have this layout; with None those of other rows."""
    return tuple(path for path in paths if layouts[path] == layout)


def _with_files_of_retrieval_folders(run: RunSpec) -> RunSpec:
    """The run with the files of folders of such rows, those that are held out by their names as its evaluation rows."""
    files: list[str] = []
    for path in run.data:
        is_folder = Path(path).is_dir() and retrieval_layout(path, run) is not None
        files += (
            [str(one.path) for one in find_data_files_of_paths([path])] if is_folder else [path]
        )
    if tuple(files) == run.data:
        return run

    def is_retrieval_file(path: str) -> bool:
        """Does a file hold such rows?"""
        return retrieval_layout(path, run) is not None

    pair = None if run.eval_data else split_training_and_held_out_files(files, is_retrieval_file)
    if pair is None:
        return run.model_copy(update={"data": tuple(files)})
    return run.model_copy(update={"data": pair.training, "eval_data": pair.held_out})


def _take_mask_from_generation_tags(run: RunSpec, seen: PathsCheck) -> RunSpec:
    """The run with its mask by `{% generation %}` tags, as TRL takes it where `assistant_only_loss` is on.

    The settings' reader decides this by the tokenizer that they name, which is often on a hub; here it is known
    which one the user has named instead.
    """
    if not run.training.assistant_only_loss or "mask_by" in seen.spec.model_fields_set:
        return run
    if not template_has_generation_tags(run.tokenizer or run.model, run.template):
        return run
    return run.model_copy(update={"mask_by": "generation-tags"})


def _judge_ids_made_by_script(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """Judge the token ids that a script among the paths makes of the rows; None if none does.

    The texts of the rows are judged beside them, as they stand in the file.
    """
    if not run.data or run.format is not None or run.map:
        return None
    scripts = [str(file) for _, file in find_source_files(seen.trainers.sources)]
    training = training_scripts(scripts)
    seen.judged.append(
        judge_labels_of_classifier(training, find_data_files_of_paths(run.data), run)
    )
    if run.tokenizer is None and run.model is None:
        name = find_tokenizer_of_scripts(training)
        if name is None:
            sources = find_data_files_of_paths(run.data)
            seen.judged.append(judge_columns_without_tokenizer(training, sources, run))
            return None
        run = run.model_copy(update={"tokenizer": name})
    if not training:
        return None
    report = inspect_ids_made_by_script(
        training, find_data_files_of_paths(run.data), seen.trainers.apply_to_run(run)
    )
    if report is None:
        return None
    why = "their tokens are judged as the script makes them"
    try:
        judgement, subject = judge_rows_by_text_rules(
            run,
            progress,
            script_reads_rows=True,
            why=why,
            columns_read=columns_read_by_paths(seen),
            tokens_added=tokens_added_by_paths(seen),
        )
        seen.subjects.append(subject)
    except TruetuneError as error:
        unread = NotJudged("the texts of the rows", str(error), asked=False)
        judgement = Judgement(not_judged=(unread,))
    seen.judged.append(judgement)
    return report


def _not_judged_absent_model(run: RunSpec) -> NotJudged | None:
    """The model that a run names as not judged, if it is not on this machine and another tokenizer
    is named.

    None if the model is here, or is the only source of a tokenizer: then the error says how to
    fetch it.
    """
    if run.model is None or run.tokenizer is None or run.tokenizer == run.model:
        return None
    try:
        find_tokenizer_folder(run.model)
    except TokenizerError as error:
        # The error says what is not here and, after the first semicolon, how to get it.
        why, _, how = str(error).partition("; ")
        return NotJudged(
            "the model beside the tokenizer", why, unlock=how or "name its folder", asked=False
        )
    return None


def _judge_token_rows(
    run: RunSpec, paths: Sequence[str], seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """Judge rows that are token ids: the report on the first path, while those on others are added
    to `seen`. None without a tokenizer.
    """
    if run.tokenizer is None and run.model is None:
        seen.subjects.append(Subject(TOKENIZED, ", ".join(paths)))
        unjudged = NotJudged(
            "the token ids",
            "there is no tokenizer to decode them with",
            unlock="name a tokenizer with -t",
        )
        seen.add_not_judged(unjudged)
        return None
    run = seen.trainers.apply_to_run(run)
    first, *others = (inspect_tokenized(path, run, progress) for path in paths)
    for report in others:
        seen.add(report)
    return first
