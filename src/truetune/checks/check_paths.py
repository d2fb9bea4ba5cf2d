"""Checks whatever a path is: `recognise` says what, each kind has its check, and all data are one report.

Settings, scripts and rows among the paths belong to one run: settings and scripts say who trains and how, and that
decides how grave the findings on the rows are. So all paths are looked at first, and the data last.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from truetune.checks.check_data import Progress, check
from truetune.checks.columns_read_by_scripts import columns_read_by_scripts
from truetune.checks.config.own_rows_not_trained import trains_demo_data_alone
from truetune.checks.detected_trainers import DetectedTrainers
from truetune.checks.findings import Finding
from truetune.checks.gpus_beside import read_gpu_file
from truetune.checks.held_out_files import pair_files
from truetune.checks.inspect_tokenized import TOKENIZED_KIND as TOKENIZED
from truetune.checks.inspect_tokenized import find_prepared_cache, inspect_tokenized, is_tokenized
from truetune.checks.judge_rows_without_tokenizer import judge_rows_by_text_rules
from truetune.checks.judge_settings import judge_settings
from truetune.checks.judgement import Judgement, NotJudged, Unmet
from truetune.checks.log.gpus_mostly_idle import describe_gpus
from truetune.checks.pad_token_of_scripts import without_pad_of_scripts
from truetune.checks.read_files_beside import files_beside_logs, read_files_beside
from truetune.checks.reconcile_findings import (
    NAN_OF_EMPTY_BATCHES,
    NO_LABEL_LEFT,
    reconcile_findings,
)
from truetune.checks.reports import DataReport, Report, Subject, add_judgement
from truetune.checks.rows_of_ids_by_script import (
    find_trained_files,
    inspect_rows_of_ids,
    judge_classes,
    judge_columns_without_tokenizer,
    make_script_tokenizer,
)
from truetune.checks.rule import DataRule
from truetune.checks.rule_catalogue import DATA, all_rules, station_of_rule
from truetune.checks.rule_runner import (
    choose_rules,
    describe_unmet,
    join_equal_findings,
    merge_explained,
)
from truetune.checks.run_of_scripts import find_run_of_scripts
from truetune.checks.template.plain_string_pair_skips_template import PlainStringPairSkipsTemplate
from truetune.checks.tokens_added_by_project import tokens_added_by_project
from truetune.checks.unread_training_settings import (
    describe_unread_training,
    unread_training_settings,
)
from truetune.checks.weight_uses import find_weight_uses
from truetune.data.find_cached_hub_datasets import (
    find_cached_dataset_files,
    may_be_hub_name,
    message_for_uncached_dataset,
)
from truetune.data.find_data_files import find_sources
from truetune.data.script_rows.find_row_shaping_script import find_shaping_script, training_scripts
from truetune.data.script_rows.read_rows_given_to_trainer import (
    MAX_FOLLOWED_ROWS,
    ScriptRows,
    tokenizer_name_of_script,
    use_tokenizer_for_script,
)
from truetune.data.tell_training_files_from_predictions import (
    list_training_files,
    sort_folder_files,
)
from truetune.errors import (
    DataError,
    SpecError,
    TemplateError,
    TokenizerError,
    TruetuneError,
    UsageError,
    name_list,
)
from truetune.logs.findings_in_files_beside_log import FilesBeside
from truetune.logs.run_log import RunLog
from truetune.parsing.shell_commands import is_command_file
from truetune.render.probes import prepare_probes_of_run
from truetune.render.tokenizer_folder import find_tokenizer_folder, lacks_tokenizer
from truetune.settings import located_document
from truetune.settings.config import Config, WeightUse
from truetune.settings.recognise_input_kind import (
    MAX_FOLDER_ENTRIES,
    METADATA_FILES,
    InputKind,
    is_model_without_weights,
    recognise_kinds,
    title_of_kind,
)
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import advise_how_to_identify, read_config
from truetune.settings.stacks.registry import config_readers
from truetune.settings.suggest_spelling import did_you_mean_path
from truetune.source.find_source_files import SKIPPED_FOLDERS, find_source_files
from truetune.trainers.trainer_facts import TrainerName

SOURCE_KINDS: tuple[InputKind, ...] = ("source", "notebook")
MODEL_BELOW: tuple[InputKind, ...] = ("model",)
"""What a folder with a model's files is taken for where it lies in the folder that was named"""
# Chosen, not measured: eight models of eight billion parameters take some seconds at the limit of bytes below.
MAX_MODELS_BELOW = 8
"""Models that are looked at in a folder that holds other things: a store of models is named one by one"""
BYTES_BELOW = 1 << 28
"""Bytes of values that are read of each of them: a second from a disk; who names the model has all of it read"""
ANSWERS = "the answers"
"""Of predictions in a folder: what is not judged here, since it takes another package"""
# Chosen, not measured: saves/model/lora/sft is three folders down; a checkout of a library has hundreds of settings.
MAX_FOLDERS_DOWN = 3
MAX_MEMBERS_BELOW = 40
LAUNCH_KEYS = ("distributed_type", "num_machines", "num_processes")
"""Of a launch configuration: how many processes it starts"""


@dataclass(slots=True)
class PathsCheck:
    """What the paths are, and what was judged so far."""

    spec: RunSpec
    base: str | None
    settings: Path | None
    """The truetune.yaml that `spec` comes from"""
    subjects: list[Subject] = field(default_factory=list)
    judged: list[Judgement] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    tokenizer: str | None = None
    run: RunSpec | None = None
    """The run that a configuration describes, with what the caller set over it"""
    own_prompt: bool = False
    """The run does not use the tokenizer's template"""
    joined: bool = False
    """The stack joins texts, or cuts long ones in pieces: nothing is lost at max_length"""
    demo_config: str = ""
    """The configuration that trains the demo data of its framework alone, and so none of the rows beside it"""
    rows_of_scripts: bool = False
    """The rows are those that a script in a folder reads, and nobody asked for them by name"""
    no_tokenizer: str = ""
    """Why the tokenizer that settings name can't be had; empty where it can, or where none is named"""
    rows_beside: tuple[str, ...] = ()
    """Files of rows among the paths, which a script among them may train on"""
    trainers: DetectedTrainers = field(default_factory=DetectedTrainers)
    """The trainers that the paths show"""
    several: bool = False
    """More than one path was named: one that cannot be read leaves the others to be judged"""
    uses: tuple[WeightUse, ...] = ()
    """What the paths merge, serve or load"""
    named: tuple[str, ...] = ()
    """The paths themselves"""
    is_paired: bool = False
    """The evaluation rows are files that are named so beside the training rows"""
    tokens_added: frozenset[str] | None = None
    """What scripts and settings among the paths add to the tokenizer; None until rows are looked at"""
    beside: FilesBeside | None = None
    """What the files among the paths say of the logs among them; None until a log is looked at"""

    def files_beside(self) -> FilesBeside:
        """What the files among the paths say of the logs among them; they are read once, and only where a log is."""
        if self.beside is None:
            self.beside = read_files_beside(*files_beside_logs(map(Path, self.named)))
        return self.beside

    def add(self, report: Report) -> None:
        """Add what a report says to what was judged so far."""
        self.subjects += report.subjects
        self.judged.append(Judgement(report.findings, report.examined, report.not_judged))


def check_paths(
    paths: Sequence[str | PathLike[str]],
    spec: RunSpec,
    *,
    settings: Path | None = None,
    base: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say what each path is, and what is wrong with it; without a path, with what `spec` names.

    `settings` is the truetune.yaml that `spec` comes from, `base` the model that a checkpoint is compared with.
    Raises a TruetuneError where a path is nothing that can be looked at, or can't be read.
    """
    started = time.perf_counter()
    # More than one path: a file that cannot be read must not hide what is wrong in the others.
    named = [os.fspath(path) for path in paths]
    seen = PathsCheck(
        spec,
        base,
        settings,
        several=len(named) > 1,
        uses=find_weight_uses(named, spec.trained_by),
        named=tuple(named),
    )
    # Known before any path is looked at: a script that is named first may train on rows that are named last.
    seen.rows_beside = tuple(path for path in named if _holds_rows(path, spec))
    for path in named:
        _check_path(path, seen, is_alone=len(named) == 1)
    if settings is not None:
        own = replace(read_config(settings), spec=spec)
        seen.trainers.config(own)
        seen.judged.append(judge_settings(own, spec))
    run = _run_to_judge(seen, named=bool(paths) and settings is None)
    report: Report | None = _judge_run_beside(run, seen, named, progress)
    if report is None:
        report = Report(spec=spec, findings=(), seconds=0)
    if isinstance(report, DataReport) and not report.rows:
        seen.subjects.append(
            Subject(title_of_kind("tokenizer"), report.tokenizer, tuple(report.facts.items()))
        )
    subjects = (*seen.subjects, *report.subjects)
    whole = add_judgement(
        replace(report, subjects=subjects, seconds=time.perf_counter() - started),
        # A single cause, such as a pad token, shows in the settings and in the rows.
        Judgement.of(seen.judged),
    )
    # Settings and data were judged apart, and may tell one cause.
    said_once = Judgement(join_equal_findings(whole.findings))
    one_cause = merge_explained(said_once, all_rules(*DATA, "config"))
    logs = [subject.log for subject in whole.subjects if subject.log is not None]
    kept = without_pad_of_scripts(one_cause.findings, _training_scripts_of(seen))
    return replace(whole, findings=reconcile_findings(kept, logs, seen.beside))


def _training_scripts_of(seen: PathsCheck) -> list[str]:
    """The scripts among what was looked at that give rows to a trainer or a loop."""
    return training_scripts(str(file) for _, file in find_source_files(seen.trainers.sources))


def _judge_run_beside(
    run: RunSpec | None, seen: PathsCheck, named: Sequence[str], progress: Progress | None
) -> Report | None:
    """As `_judge_run`; rows of a folder that can't be read are not judged, and hide nothing that was found beside.

    Raises a TruetuneError where the rows were named, or nothing else was judged.
    """
    if run is None:
        return None
    try:
        return _judge_run(run, seen, progress)
    except DataError as error:
        # A folder is named for all that it holds; a file is named for its rows.
        files_named = [path for path in run.data if path in named and Path(path).is_file()]
        if not seen.subjects or files_named:
            raise
        files = name_list([Path(path).name or path for path in run.data])
        seen.judged.append(Judgement(not_judged=(NotJudged(f"the rows of {files}", str(error)),)))
        return None


def _judge_run(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> Report | None:
    """What the rules say on the data and the tokenizer of a run; None where none of it can be judged.

    Rows that are token ids already have rules of their own. Where there are both kinds, the report is that on the
    other rows, and what was found in the ids is added to `seen`.
    """
    run = _shape_by_script(run, seen)
    _name_evaluation_rows(run, seen)
    lacking = _absent_model(run)
    if lacking is not None:
        seen.judged.append(Judgement(not_judged=(lacking,)))
        run = run.model_copy(update={"model": None})
    tokenized = [path for path in run.data if is_tokenized(path, run)]
    if not tokenized:
        of_script = _judge_ids_of_script(run, seen, progress)
        return _judge_rows_and_held_out(run, seen, progress) if of_script is None else of_script
    of_ids = _check_tokenized(run, tokenized, seen, progress)
    rest = tuple(path for path in run.data if path not in tokenized)
    if not rest:
        return of_ids
    of_rows = _judge_rows(run.model_copy(update={"data": rest}), seen, progress)
    if of_rows is not None and of_ids is not None:
        seen.add(of_ids)
    return of_rows or of_ids


def _name_evaluation_rows(run: RunSpec, seen: PathsCheck) -> None:
    """Name the evaluation rows that nobody named, among what was looked at."""
    if run.eval_data and run.eval_data != seen.spec.eval_data:
        facts = (("compared with", name_list([Path(path).name for path in run.data])),)
        seen.subjects.append(Subject("evaluation rows", ", ".join(run.eval_data), facts))


def _judge_rows_and_held_out(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """As `_judge_rows`; evaluation rows that a script, settings or the names of files tell are judged by themselves as
    well: a run whose training is sound evaluates to nan where their prompts fill the limit."""
    report = _judge_rows(run, seen, progress)
    is_told = seen.is_paired or not seen.spec.eval_data
    if is_told and run.eval_data and not set(run.eval_data) & set(run.data):
        _judge_held_out_rows(run, seen, report, progress)
    return report


def _judge_held_out_rows(
    run: RunSpec, seen: PathsCheck, of_training: Report | None, progress: Progress | None
) -> None:
    """Add the errors in rows that are held out; the rest of what rules say is of training.

    What the training rows have as well is said of them alone.
    """
    own = replace(seen, subjects=list(seen.subjects), judged=[])
    try:
        report = _judge_rows(
            run.model_copy(update={"data": run.eval_data, "eval_data": ()}), own, progress
        )
    except TruetuneError:
        return  # the comparison with the training rows says what is wrong with the file
    of_rows = Judgement.of([*seen.judged, _judgement_of(of_training)])
    known = {finding.code for finding in of_rows.findings}
    found = Judgement.of([*own.judged, _judgement_of(report)]).findings
    fresh = [one for one in found if one.code not in known]
    errors = [
        _of_evaluation_rows(one) if one.rule == NO_LABEL_LEFT else one
        for one in fresh
        if one.severity == "error"
    ]
    # A trainer that drops training rows without a label may still evaluate them, which gives nan.
    empty = [one for one in fresh if one.rule == NO_LABEL_LEFT and one.severity != "error"]
    seen.judged.append(Judgement((*errors, *map(_of_evaluation_rows, empty))))


def _of_evaluation_rows(finding: Finding) -> Finding:
    """A finding on rows without a label, said of the rows of an evaluation."""
    return replace(
        finding, evidence=(*finding.evidence, f"these are evaluation rows: {NAN_OF_EMPTY_BATCHES}")
    )


def _judgement_of(report: Report | None) -> Judgement:
    """What a report judges; nothing where there is none."""
    return Judgement() if report is None else Judgement(report.findings)


def _shape_by_script(run: RunSpec, seen: PathsCheck) -> RunSpec:
    """The run with what the script that trains its files says of them: tokenizer, evaluation rows, and how it shapes
    the rows, where that is not as they stand."""
    if run.data and run.format is not None and is_script_named_as_format(run.format):
        _bring_tokenizer(run.format, run)
        return run
    if not run.data or run.format is not None or run.map:
        return run
    scripts = training_scripts(str(file) for _, file in find_source_files(seen.trainers.sources))
    update = _bring_tokenizer_of_scripts(scripts, run)
    shaping = find_shaping_script(scripts, run.data)
    if shaping is None:
        return run
    rows = shaping.rows
    if not run.eval_data and rows.evaluation:
        update["eval_data"] = rows.evaluation_files
        update["data"] = rows.files
    if shaping.differs:
        update["format"] = rows.script
        update["data"] = rows.files
        seen.subjects.append(Subject("rows of a script", rows.script, shaping.facts()))
        seen.rows_of_scripts = seen.own_prompt = False
    elif seen.rows_of_scripts:
        # The script was followed to its trainer, and gives it these rows as they stand.
        seen.own_prompt = False
    if "data" in update:
        seen.judged.append(Judgement(not_judged=tuple(_rows_left_out(run, rows))))
    return run.model_copy(update=update)


def _bring_tokenizer_of_scripts(scripts: Sequence[str], run: RunSpec) -> dict[str, object]:
    """Let scripts be followed with the run's tokenizer, or with the one that they load; gives what the run lacks."""
    update: dict[str, object] = {}
    name = _tokenizer_of_scripts(scripts) if run.tokenizer is None and run.model is None else None
    if name is not None:
        update["tokenizer"] = name
    with_tokenizer = run.model_copy(update=update)
    for script in scripts:
        _bring_tokenizer(script, with_tokenizer)
    return update


def _tokenizer_of_scripts(scripts: Iterable[str]) -> str | None:
    """The tokenizer that all these scripts load; None where they load several, or it can't be loaded here."""
    names = {tokenizer_name_of_script(script) for script in scripts}
    name = names.pop() if len(names) == 1 else None
    return None if name is None or _lacking_tokenizer(RunSpec(tokenizer=name)) else name


def _lacking_tokenizer_of_scripts(seen: PathsCheck) -> str:
    """Why the one tokenizer that the scripts load can't be had; empty where they load none, or several."""
    sources = (str(file) for _, file in find_source_files(seen.trainers.sources))
    names = {tokenizer_name_of_script(script) for script in training_scripts(sources)}
    name = names.pop() if len(names) == 1 else None
    return _lacking_tokenizer(RunSpec(tokenizer=name)) if name else ""


def _bring_tokenizer(script: str, run: RunSpec) -> None:
    """Let a script be followed with the tokenizer of the run, if it has a usable one: the check says why not."""
    try:
        tokenizer = make_script_tokenizer(prepare_probes_of_run(run))
    except TruetuneError:
        tokenizer = None
    use_tokenizer_for_script(script, tokenizer)


def _rows_left_out(run: RunSpec, rows: ScriptRows) -> Iterator[NotJudged]:
    """The rows that are not judged where those of a script are: of other files, and beyond the limit."""
    others = [
        Path(str(source.path))
        for source in find_sources(run.data)
        if rows.rows_of_file(Path(str(source.path))) is None
    ]
    if others:
        why = f"{rows.script} does not train them: {name_list([path.name for path in others])}"
        yield NotJudged("other rows", why, unlock="name them alone", asked=False)
    if rows.is_cut:
        why = f"of a file, the first {MAX_FOLLOWED_ROWS:,} rows are followed through the script"
        yield NotJudged("the other rows", why, asked=False)


def _judge_ids_of_script(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """What the rules say of the token ids that a script among the paths makes of the rows; None where none does.

    The texts of the rows are judged beside them, as they stand in the file.
    """
    if not run.data or run.format is not None or run.map:
        return None
    scripts = [str(file) for _, file in find_source_files(seen.trainers.sources)]
    training = training_scripts(scripts)
    seen.judged.append(judge_classes(training, find_sources(run.data), run))
    if run.tokenizer is None and run.model is None:
        name = _tokenizer_of_scripts(training)
        if name is None:
            sources = find_sources(run.data)
            seen.judged.append(judge_columns_without_tokenizer(training, sources, run))
            return None
        run = run.model_copy(update={"tokenizer": name})
    if not training:
        return None
    report = inspect_rows_of_ids(training, find_sources(run.data), seen.trainers.over(run))
    if report is None:
        return None
    why = "their tokens are judged as the script makes them"
    try:
        judgement, subject = judge_rows_by_text_rules(
            run,
            progress,
            script_reads_rows=True,
            why=why,
            columns_read=_columns_read(seen),
            tokens_added=_tokens_added(seen),
        )
        seen.subjects.append(subject)
    except TruetuneError as error:
        unread = NotJudged("the texts of the rows", str(error), asked=False)
        judgement = Judgement(not_judged=(unread,))
    seen.judged.append(judgement)
    return report


def _judge_rows(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> Report | None:
    """What the rules say on rows that are rendered, and on the tokenizer; None where they can't be rendered."""
    if run.data and run.tokenizer is None and run.model is None:
        _judge_texts_of_rows(run, seen, progress)
        return None
    if seen.rows_of_scripts:
        return _judge_rows_of_scripts(run, seen, progress)
    note = seen.trainers.note()
    if run.trained_by is None and note:
        seen.subjects.append(Subject("trainer", "not known", (("note", note),)))
    return _check_rows(seen.trainers.over(run), seen, progress)


def _judge_texts_of_rows(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> None:
    """Note what the rules on texts say of rows whose tokenizer is missing, and that the others could not judge.

    Raises a TruetuneError where the rows can't be read, and nothing else was judged.
    """
    why = seen.no_tokenizer or _lacking_tokenizer_of_scripts(seen) or "no tokenizer is named"
    what = "the prompts, tokens and lengths of the data"
    try:
        judgement, subject = judge_rows_by_text_rules(
            seen.trainers.over(run),
            progress,
            script_reads_rows=seen.rows_of_scripts,
            why=why,
            columns_read=_columns_read(seen),
            tokens_added=_tokens_added(seen),
        )
    except TruetuneError as error:
        if not seen.subjects:
            raise
        judgement = Judgement()
        subject = Subject(title_of_kind("data"), ", ".join(run.data))
        what, why = "the data", str(error)
    seen.subjects.append(subject)
    not_rendered = NotJudged(
        what,
        why,
        unlock="name a tokenizer with -t",
        # Settings that were judged are an answer by themselves; rows that were named, and half read, are none.
        asked=not seen.rows_of_scripts and not seen.no_tokenizer,
    )
    seen.judged += [judgement, Judgement(not_judged=(not_rendered,))]


def _judge_rows_of_scripts(
    run: RunSpec, seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """As `_judge_rows`; rows that can't be read as they stand are not judged, for the script may change them first."""
    try:
        return _check_rows(seen.trainers.over(run), seen, progress)
    except TruetuneError as error:
        why = f"they are no rows of a known form as they stand: {error}"
        unjudged = NotJudged("the rows that the script reads", why, asked=False)
        seen.judged.append(Judgement(not_judged=(unjudged,)))
        return None


def _absent_model(run: RunSpec) -> NotJudged | None:
    """The model that a run names, where it is not on this machine and a tokenizer of its own stands in for its files.

    None where the model is here, or is the only source of a tokenizer: then the error says how to fetch it.
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


def _check_tokenized(
    run: RunSpec, paths: Sequence[str], seen: PathsCheck, progress: Progress | None
) -> Report | None:
    """What the rules on tokenized rows say; the first report, the others being noted. None without a tokenizer."""
    if run.tokenizer is None and run.model is None:
        seen.subjects.append(Subject(TOKENIZED, ", ".join(paths)))
        unjudged = NotJudged(
            "the token ids",
            "there is no tokenizer to read them with",
            unlock="name a tokenizer with -t",
        )
        seen.judged.append(Judgement(not_judged=(unjudged,)))
        return None
    run = seen.trainers.over(run)
    first, *others = (inspect_tokenized(path, run, progress) for path in paths)
    for report in others:
        seen.add(report)
    return first


def _check_rows(run: RunSpec, seen: PathsCheck, progress: Progress | None) -> Report | None:
    """What the rules on data and tokenizer say; None where a tokenizer that the user did not name is broken, and other
    things were judged: settings may name a folder that holds the model's config.json alone."""
    try:
        return check(
            run,
            _data_rules(run, seen),
            progress=progress,
            cut=not seen.joined,
            columns_read=_columns_read(seen),
            tokens_added=_tokens_added(seen),
        )
    except TokenizerError as error:
        # A tokenizer that the user named himself, or the only thing that was named, must not be passed over in
        # silence.
        if seen.spec.tokenizer is not None or not seen.subjects:
            raise
        if run.data:
            seen.no_tokenizer = _first_words(error)
            _judge_texts_of_rows(run, seen, progress)
            return None
        seen.subjects.append(Subject(title_of_kind("tokenizer"), run.tokenizer or ""))
        seen.judged.append(
            Judgement(not_judged=(NotJudged("the tokenizer", str(error), asked=False),))
        )
        return None


def _columns_read(seen: PathsCheck) -> frozenset[str]:
    """The columns that the scripts among the paths read."""
    return columns_read_by_scripts(seen.trainers.sources)


def _tokens_added(seen: PathsCheck) -> frozenset[str]:
    """The tokens that scripts and settings among the paths add to the tokenizer; they are looked for once."""
    if seen.tokens_added is None:
        seen.tokens_added = tokens_added_by_project(seen.trainers.sources, seen.named)
    return seen.tokens_added


def _run_to_judge(seen: PathsCheck, *, named: bool) -> RunSpec | None:
    """The data and tokenizer that can be looked at; None where there is nothing of them."""
    # Paths that are named stand for themselves: the data of truetune.yaml is then not meant.
    run = seen.run or (seen.spec.model_copy(update={"data": ()}) if named else seen.spec)
    data = tuple(seen.data) or run.data
    tokenizer = run.tokenizer or seen.tokenizer
    if not data and not _is_tokenizer_to_judge(seen, tokenizer, named=named):
        if not named and tokenizer is None and not seen.subjects:
            raise UsageError(
                "nothing is named; give a path after `truetune check`, or `data:` in truetune.yaml"
            )
        return None
    run = run.model_copy(update={"data": data, "tokenizer": tokenizer})
    return _with_held_out_files(run, seen) if seen.data and not run.eval_data else run


def _with_held_out_files(run: RunSpec, seen: PathsCheck) -> RunSpec:
    """The run with the files among its data that are held out by their names as its evaluation rows."""
    pair = pair_files(run.data)
    if pair is None:
        return run
    seen.is_paired = True
    return run.model_copy(update={"data": pair.training, "eval_data": pair.held_out})


def _is_tokenizer_to_judge(seen: PathsCheck, tokenizer: str | None, *, named: bool) -> bool:
    """Is a tokenizer worth a check without rows? It is where it was named; that of settings was judged there."""
    is_named = seen.run is None and seen.tokenizer is not None
    return is_named or (not named and tokenizer is not None)


def _data_rules(run: RunSpec, seen: PathsCheck) -> list[type[DataRule]]:
    """The rules on data that hold for this run."""
    rules = choose_rules(run, DataRule)
    if seen.own_prompt:
        # The template of the tokenizer is not what the stack writes: rules on prompts would judge a text that nobody
        # trains.
        rules = [rule for rule in rules if station_of_rule(rule) in ("rows", "pairs")]
    if seen.joined:
        # What is joined or split loses no token at the limit.
        rules = [rule for rule in rules if not rule.judges_cut]
    # Rows that are followed through the script are seen as the messages that it makes.
    is_followed = run.format is not None and is_script_named_as_format(run.format)
    made_messages = seen.trainers.made_messages if run.data and not is_followed else ""
    if made_messages and PlainStringPairSkipsTemplate in rules:
        # Rows that a script maps to messages are not trained as the strings that stand in the file.
        why = f"{made_messages} makes messages of the rows, which the chat template renders"
        unmet = Unmet(why, "see what reaches the loss: truetune run -- COMMAND")
        not_met = describe_unmet(PlainStringPairSkipsTemplate, unmet)
        seen.judged.append(Judgement(not_judged=(not_met,)))
        rules.remove(PlainStringPairSkipsTemplate)
    return rules


def _check_path(path: str, seen: PathsCheck, *, is_alone: bool) -> None:
    """Look at a path. What it is may be unknown where others are named beside it: then it alone is not judged.

    Raises a TruetuneError where it is not there, and where it is named alone and can't be read.
    """
    try:
        kinds = kinds_of(path, seen.spec.trained_by)
    except UsageError as error:
        # A folder may be of no kind as a whole and still hold files that are.
        is_folder = Path(path).is_dir()
        if is_folder and check_folder(Path(path), (), seen):
            return
        if is_alone or not Path(path).exists():
            raise
        seen.judged.append(Judgement(not_judged=(_unread_path(path, error, is_named=True),)))
        return
    _check_path_of_kinds(path, kinds, seen, is_alone=is_alone)


def _check_path_of_kinds(
    path: str, kinds: tuple[InputKind, ...], seen: PathsCheck, *, is_alone: bool
) -> None:
    """Look at a path whose kinds are known; raises as `_check_path`."""
    if kinds[0] in REASON_BY_UNJUDGED_KIND:
        unjudged = REASON_BY_UNJUDGED_KIND[kinds[0]](path)
        is_named = is_alone or kinds[0] != "deepspeed"
        seen.judged.append(Judgement(not_judged=(replace(unjudged, asked=is_named),)))
        return
    if CHECKED_KINDS.isdisjoint(kinds) and config_readers().keys().isdisjoint(kinds):
        what = title_of_kind(kinds[0])
        raise UsageError(f"{path}: found {what}, which truetune check can't look at")
    if (
        Path(path).is_dir()
        and WHOLE_FOLDER_KINDS.isdisjoint(kinds)
        and check_folder(Path(path), kinds, seen)
    ):
        return
    try:
        _check_kinds(path, kinds, seen)
    except DataError as error:
        # Of data and settings the error is the answer; a text file beside them may be anything.
        if is_alone or not set(kinds) <= {"log", "run"}:
            raise
        seen.judged.append(Judgement(not_judged=(_unread_path(path, error, is_named=True),)))


MODEL_FOLDER_KINDS = frozenset(("model", "model config", "adapter", "tokenizer"))
"""A folder that is mainly the files of a model; others may lie beside them"""
VOCABULARIES = frozenset(("merges.txt", "vocab.txt"))
WRITTEN_SETTINGS = frozenset(
    ("training_args.yaml", "llamaboard_config.yaml", "axolotl_config.yaml", "truetune.yaml")
)
"""Settings that a program writes into the folder of its run"""


def _check_kinds(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """What the rules say on a path of these kinds."""
    if kinds[0] == "encoded":
        seen.data.append(path)
    elif "data" in kinds and kinds[0] in ("data", *SOURCE_KINDS):
        if Path(path).is_dir():
            _take_rows_of_folder(Path(path), kinds, seen)
        else:
            seen.data.append(path)
    _check_each_kind(path, kinds, seen)
    _check_beside(path, kinds, seen)


def _check_each_kind(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """What the rules on each of the kinds of a path say.

    One thing in a folder that can't be read keeps nothing else back. Raises a TruetuneError where nothing was judged.
    """
    before, errors = len(seen.subjects), list[TruetuneError]()
    # A folder of notebooks and scripts is linted once: imports between them are followed.
    for kind in dict.fromkeys("source" if kind in SOURCE_KINDS else kind for kind in kinds):
        try:
            _check_kind(path, kind, seen)
        except TruetuneError as error:
            errors.append(error)
    if errors and (not Path(path).is_dir() or len(seen.subjects) == before):
        raise errors[0]
    unread = [_unread_path(path, error, is_named=True) for error in errors]
    seen.judged.append(Judgement(not_judged=tuple(unread)))


def _check_kind(path: str, kind: InputKind, seen: PathsCheck) -> None:
    """What the rules on one of the kinds of a path say."""
    if kind in config_readers() and (kind != "truetune" or seen.settings is None):
        _check_settings(path, seen)
    elif kind in CHECK_BY_KIND:
        seen.add(CHECK_BY_KIND[kind](path, seen))


def _check_beside(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """What belongs to a path besides: files of its model, settings beside its sources, the last checkpoint of a run."""
    if "tokenizer" in kinds:
        if is_model_without_weights(Path(path)):
            seen.add(_check_checkpoint(path, seen))
        seen.tokenizer = seen.tokenizer or path
    if not set(SOURCE_KINDS).isdisjoint(kinds):
        _check_settings_in(Path(path), seen)
        _diagnose_outputs(Path(path), seen)
        _check_rows_beside(Path(path), kinds, seen)
    if kinds[0] == "run" and {"model", "adapter"}.isdisjoint(kinds):
        _check_beside_state(Path(path), kinds, seen)
    if kinds[0] in MODEL_FOLDER_KINDS and "run" not in kinds and Path(path).is_dir():
        _check_project_beside_model(Path(path), kinds, seen)


def _check_beside_state(path: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Judge what lies beside the state or the log of a run: its last checkpoint, settings and commands."""
    _check_last_checkpoint(path, seen)
    if _is_project_with_checkpoints(path, kinds):
        _check_settings_and_commands(path, seen)
    elif path.is_dir() and set(SOURCE_KINDS).isdisjoint(kinds):
        _check_commands(path, seen)
        _check_settings_beside_state(path, seen)


def _check_project_beside_model(
    folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> None:
    """Judge the logs, commands and settings beside the files of a model: who asks for help puts its config.json beside
    the compose file and the log of the server."""
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    for path in _user_entries(folder):
        # A vocabulary is a text file, too.
        if not path.is_file() or path.name in VOCABULARIES:
            continue
        found = _kinds_or_none(path)
        is_wanted = bool(found) and (
            found[0] == "log"
            # Sources are judged with the commands and settings beside them.
            or (not has_sources and (found[0] == "commands" or found[0] in config_readers()))
        )
        if is_wanted:
            _check_member(str(path), found, seen)


def _check_rows_beside(path: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Judge the rows that scripts train, where no rows and no settings were named."""
    # Whoever names a tokenizer for a single script wants its rows counted with it.
    is_asked = not seen.several and seen.spec.tokenizer is not None and path.suffix == ".py"
    if not (path.is_dir() or is_asked) or seen.run is not None:
        return
    if "data" not in kinds:
        _check_rows_of_scripts(path, seen)
    elif kinds[0] == "run" and not seen.data:
        # The state or log of the run lies in the project itself, beside its scripts and rows.
        _check_rows_of_scripts(path, seen)
        if seen.run is None and not seen.data:
            seen.data += list_training_files(path)


def _check_last_checkpoint(folder: Path, seen: PathsCheck) -> None:
    """Judge the newest checkpoint of a run; one that can't be read is said, and keeps nothing back."""
    last = _last_checkpoint(folder)
    if last is None:
        return
    if not _is_model(last):
        why = "it holds no config.json, adapter_config.json or safetensors file: its weights are not looked at"
        unread = NotJudged("the last checkpoint", why, place=str(last), asked=False)
        seen.judged.append(Judgement(not_judged=(unread,)))
        return
    try:
        seen.add(_check_checkpoint(str(last), seen))
    except TruetuneError as error:
        unread = _unread_path(str(last), error, is_named=False)
        seen.judged.append(Judgement(not_judged=(replace(unread, always_told=True),)))


def _is_project_with_checkpoints(folder: Path, kinds: tuple[InputKind, ...]) -> bool:
    """Is it the folder of a project, in which checkpoints lie beside settings and jobs? A trainer's own folder has its
    state, and scripts are looked at with the settings beside them."""
    has_state = folder.joinpath("trainer_state.json").is_file()
    return folder.is_dir() and not has_state and set(SOURCE_KINDS).isdisjoint(kinds)


def _check_settings_and_commands(folder: Path, seen: PathsCheck) -> None:
    """Judge the files of settings and of commands in a folder."""
    for path in _user_entries(folder):
        kinds = _kinds_or_none(path) if path.is_file() else ()
        if kinds and (kinds[0] in config_readers() or kinds[0] in ("commands", "modelfile")):
            _check_member(str(path), kinds, seen)


def _check_commands(folder: Path, seen: PathsCheck) -> None:
    """Judge the files of commands beside the state of a run: a job that evaluates it, or that started it. Settings in
    such a folder were written by the trainer."""
    for path in _user_entries(folder):
        kinds = _kinds_or_none(path) if path.is_file() else ()
        if kinds and kinds[0] == "commands":
            _check_member(str(path), kinds, seen)


def _check_settings_beside_state(folder: Path, seen: PathsCheck) -> None:
    """Judge the settings of a training that lie beside the state of its run, but for the copies that programs write."""
    for file in _user_entries(folder):
        if (
            file.suffix in (".yaml", ".yml")
            and file.name not in WRITTEN_SETTINGS
            and _is_settings(file)
        ):
            _check_settings(str(file), seen)


def _check_settings_in(folder: Path, seen: PathsCheck) -> None:
    """Judge the settings that lie beside the sources of a folder; of a single source, none."""
    if not folder.is_dir():
        return
    for file in sorted(folder.glob("*.y*ml")):
        if _is_settings(file):
            _check_settings(str(file), seen)


def check_folder(folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> bool:
    """Look at a folder of files of several kinds, one after another; what none of them is, is said.

    Args:
        folder: no run, model or data set of its own.
        kinds: what its files are, as far as `recognise` tells it of a folder.
        seen: gets what is found.

    Returns:
        Is anything in it that was looked at? If not, `seen` gets at most that settings of a training were not read.
    """
    # A folder of `save_to_disk` or of a trainer holds many JSON files, and is one thing.
    if folder.joinpath("state.json").is_file() or folder.joinpath("dataset_dict.json").is_file():
        return False
    members, unread = _folder_members(folder)
    models = list(_models_below(folder))
    members += [(path, MODEL_BELOW) for path in models[:MAX_MODELS_BELOW]]
    rows_below = _row_folders_below(folder)
    if not members and not rows_below:
        left_out = tuple(map(describe_unread_training, unread_training_settings(folder, unread)))
        seen.judged.append(Judgement(not_judged=left_out))
        return False
    _check_members(folder, kinds, members, seen)
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    # Scripts and settings say themselves which rows they train.
    if not has_sources and not seen.data and (seen.run is None or not seen.run.data):
        for path in rows_below:
            _add_rows_of_folder(path, seen)
    left_out = tuple(_not_read(folder, unread, models))
    seen.judged.append(Judgement(not_judged=left_out))
    return True


def _check_members(
    folder: Path,
    kinds: tuple[InputKind, ...],
    members: Sequence[tuple[Path, tuple[InputKind, ...]]],
    seen: PathsCheck,
) -> None:
    """Look at the sources of a folder, at its members, and take its rows as data where no settings name others."""
    has_sources = not set(SOURCE_KINDS).isdisjoint(kinds)
    if has_sources:
        seen.add(_lint_sources(str(folder), seen))
    for path, path_kind in members:
        # Commands are read with the sources of the folder.
        if path_kind[0] != "commands" or not has_sources:
            _check_member(str(path), path_kind, seen)
    if "data" in kinds and (seen.run is None or not seen.run.data):
        _take_rows_of_folder(folder, kinds, seen)
    elif has_sources and seen.run is None:
        _check_rows_of_scripts(folder, seen)


def _take_rows_of_folder(folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Take as data the rows of a folder, or those elsewhere that its scripts train."""
    trained = _rows_trained_elsewhere(folder, kinds, seen)
    if trained is None:
        _add_rows_of_folder(folder, seen)
    else:
        _judge_trained_rows(trained, seen)
        _leave_out_own_rows(folder, seen)


def _add_rows_of_folder(folder: Path, seen: PathsCheck) -> None:
    """Take the training rows of a folder as data; what its other files are is said.

    Rows that the run beside them does not train are left out: what is said of them would be taken for the run's.
    """
    if seen.demo_config:
        unjudged = NotJudged(
            "the rows",
            f"{seen.demo_config} trains others",
            place=str(folder),
            unlock=f"truetune check {folder}",
        )
        seen.judged.append(Judgement(not_judged=(unjudged,)))
        return
    files = sort_folder_files(folder)
    if files is None:
        seen.data.append(str(folder))
        return
    seen.data += files.training
    for path in files.predictions:
        why = "they are predictions of a model beside their references, and no training rows"
        unjudged = NotJudged(
            ANSWERS,
            why,
            place=path,
            unlock=f"truetune score {path}",
            asked=not files.training,
        )
        seen.judged.append(Judgement(not_judged=(unjudged,)))
    if files.origins:
        names = name_list([Path(path).name for path in files.origins])
        why = "a script here makes the rows that are trained of them, and those are judged"
        unjudged = NotJudged(f"the rows of {names}", why, place=str(folder), asked=False)
        seen.judged.append(Judgement(not_judged=(unjudged,)))
    if files.others:
        names = name_list([Path(path).name for path in files.others])
        why = f"settings, logs, lists of names, verdicts or raw input of a script, and no rows: {names}"
        unjudged = NotJudged("other files", why, place=str(folder), asked=False)
        seen.judged.append(Judgement(not_judged=(unjudged,)))


class _TrainedRows(NamedTuple):
    """The rows that the scripts of a folder train."""

    run: RunSpec | None
    """With the limit that the one script sets, where its rows are of a known form; None where the script alone knows
    what they are"""
    files: tuple[str, ...]


def _find_trained_rows(folder: Path, seen: PathsCheck) -> _TrainedRows:
    """What the one training script of a folder reads; no file where that is not known."""
    files = sorted(folder.glob("*.py")) if folder.is_dir() else [folder]
    run = find_run_of_scripts(files[:MAX_FOLDER_ENTRIES])
    # Rows that need columns mapped, or are of no known form, would be judged wrongly: the script reads them in its
    # own way.
    if run is not None and all(_holds_rows(path, seen.spec) for path in run.data):
        return _TrainedRows(run, run.data)
    scripts = [str(file) for _, file in find_source_files([str(folder)])]
    return _TrainedRows(None, find_trained_files(scripts))


def _rows_trained_elsewhere(
    folder: Path, kinds: tuple[InputKind, ...], seen: PathsCheck
) -> _TrainedRows | None:
    """What the scripts of a folder train, where that lies elsewhere and no file in the folder holds rows of a known
    form; else None.

    Such files (answers beside what was expected, a table of scores) would hide the rows that are trained.
    """
    if set(SOURCE_KINDS).isdisjoint(kinds) or seen.run is not None or list_training_files(folder):
        return None
    trained = _find_trained_rows(folder, seen)
    own = folder.resolve()
    is_elsewhere = all(Path(file).resolve().parent != own for file in trained.files)
    return trained if trained.files and is_elsewhere else None


def _leave_out_own_rows(folder: Path, seen: PathsCheck) -> None:
    """Say which files of a folder hold rows of no known form that its scripts do not train."""
    names = [path.name for path in _user_entries(folder) if _holds_rows(str(path), seen.spec)]
    if names:
        why = "no format fits their columns, and the scripts here train other files"
        unread = NotJudged(f"the rows of {name_list(names)}", why, place=str(folder), asked=False)
        seen.judged.append(Judgement(not_judged=(unread,)))


def _check_rows_of_scripts(folder: Path, seen: PathsCheck) -> None:
    """Judge the rows that the one training script of a folder reads, with the limit that it sets."""
    _judge_trained_rows(_find_trained_rows(folder, seen), seen)


def _judge_trained_rows(trained: _TrainedRows, seen: PathsCheck) -> None:
    """Take the rows that scripts train as what is judged."""
    if trained.run is None:
        seen.data += trained.files
        seen.rows_of_scripts = bool(seen.data)
        return
    settings = {name: getattr(seen.spec, name) for name in seen.spec.model_fields_set - {"data"}}
    seen.run = trained.run.model_copy(update=settings)
    # A script may build prompts of its own from the rows.
    seen.own_prompt = seen.rows_of_scripts = True


def _not_read(folder: Path, unread: Sequence[str], models: Sequence[Path]) -> Iterator[NotJudged]:
    """What of a folder was left out: files of no kind, and models beyond the first."""
    trainings = unread_training_settings(folder, unread)
    yield from map(describe_unread_training, trainings)
    unread = [name for name in unread if str(folder / name) not in trainings]
    if unread:
        why = f"of no kind that truetune reads: {name_list(unread)}"
        yield NotJudged("other files", why, place=str(folder), asked=False)
    if len(models) > MAX_MODELS_BELOW:
        why = f"of the models and adapters below, the first {MAX_MODELS_BELOW} were read"
        yield NotJudged("other models", why, place=str(folder), unlock="name them", asked=False)


def _folder_members(folder: Path) -> tuple[list[tuple[Path, tuple[InputKind, ...]]], list[str]]:
    """What lies in a folder of several kinds, and below it: (path, its kinds), and the names of what is of no kind."""
    members: list[tuple[Path, tuple[InputKind, ...]]] = []
    unread = []
    for path in _user_entries(folder):
        kinds = _kinds_or_none(path)
        if kinds and _is_member_with_folder(path, kinds):
            members.append((path, kinds))
            continue
        below = list(_members_below(path)) if path.is_dir() else []
        members += below
        if not kinds and _holds_commands(path):
            members.append((path, ("commands",)))
        elif not kinds and not below:
            unread.append(path.name)
    return members, unread


def _user_entries(folder: Path) -> list[Path]:
    """The files and folders in a folder that the user may mean.

    Files that describe others (a README, a licence) and folders of tools are nothing that was forgotten.
    """
    return [
        path
        for path in sorted(islice(folder.iterdir(), MAX_FOLDER_ENTRIES))
        if not path.name.startswith(".")
        and path.name not in METADATA_FILES
        and path.name not in SKIPPED_FOLDERS
    ]


def _row_folders_below(folder: Path) -> list[Path]:
    """The folders directly below that hold rows and are no model, run or cache of something else."""
    return [path for path in _user_folders(folder) if _is_folder_of_rows(_kinds_or_none(path))]


def _is_folder_of_rows(kinds: tuple[InputKind, ...]) -> bool:
    """Does a folder of these kinds hold rows, and is it no model, run or encoded data?"""
    return "data" in kinds and WHOLE_FOLDER_KINDS.isdisjoint(kinds)


def _is_member_with_folder(path: Path, kinds: tuple[InputKind, ...]) -> bool:
    """Is it a run's folder, or a file that is looked at by itself?"""
    return kinds[0] == "run" if path.is_dir() else _is_member(kinds[0])


def _members_below(folder: Path) -> Iterator[tuple[Path, tuple[InputKind, ...]]]:
    """The runs, settings and logs in a folder of a project (`configs/`, `logs/`, `saves/x/sft/`) and those below it.

    Sources and commands are not among them: they are linted together, whatever folder they are in. Nor are models,
    which have limits of their own, and configurations that no rule reads alone.
    """
    yield from islice(_walk_members(folder, MAX_FOLDERS_DOWN), MAX_MEMBERS_BELOW)


def _walk_members(folder: Path, levels: int) -> Iterator[tuple[Path, tuple[InputKind, ...]]]:
    """As `_members_below`, so many levels down."""
    if levels == 0 or not WHOLE_FOLDER_KINDS.isdisjoint(_kinds_or_none(folder)):
        return
    for path in _user_entries(folder):
        kinds = _kinds_or_none(path)
        if kinds and _is_member_with_folder(path, kinds):
            if kinds[0] != "commands" and kinds[0] not in REASON_BY_UNJUDGED_KIND:
                yield path, kinds
        elif path.is_dir():
            yield from _walk_members(path, levels - 1)


def _models_below(folder: Path) -> Iterator[Path]:
    """The models and adapters in a folder of several kinds, one or two levels below: MODEL, out/MODEL."""
    for child in _user_folders(folder):
        # The checkpoints of a run are looked at with the run.
        if "run" in _kinds_or_none(child):
            continue
        if _is_model(child):
            yield child
        else:
            yield from filter(_is_model, _user_folders(child))


def _user_folders(folder: Path) -> list[Path]:
    """The folders in a folder that may be the user's, by name."""
    return [
        path
        for path in sorted(islice(folder.iterdir(), MAX_FOLDER_ENTRIES))
        if path.is_dir() and not path.name.startswith(".") and path.name not in SKIPPED_FOLDERS
    ]


def _is_model(path: Path) -> bool:
    """Does a folder hold a model or adapter, or the JSON files of a model?"""
    kinds = _kinds_or_none(path)
    if "tokenizer" in kinds and is_model_without_weights(path):
        return True
    return not {"model", "model config", "adapter"}.isdisjoint(kinds)


def _kinds_or_none(path: Path) -> tuple[InputKind, ...]:
    """What a folder is; nothing where it is none of what truetune looks at, or can't be read."""
    try:
        return recognise_kinds(path)
    except (UsageError, OSError):
        return ()


def _holds_commands(path: Path) -> bool:
    """Is it a folder with files of commands in it, or below (lm_eval writes its results two folders down)?"""
    if not path.is_dir():
        return False
    # Bounded: a data set may lie below with a million files.
    names = islice(path.rglob("*"), MAX_FOLDER_ENTRIES)
    return any(is_command_file(file) for file in names if file.is_file())


def _is_member(kind: InputKind) -> bool:
    """Is a file of this kind looked at where it lies in a folder of several kinds?"""
    return kind in MEMBER_KINDS or kind in config_readers()


def _check_member(path: str, kinds: tuple[InputKind, ...], seen: PathsCheck) -> None:
    """Look at a file or run in a folder; one that can't be read is not judged, and keeps no other back."""
    try:
        if kinds[0] in REASON_BY_UNJUDGED_KIND:
            unjudged = replace(REASON_BY_UNJUDGED_KIND[kinds[0]](path), asked=False)
            file = Path(path)
            if kinds[0] == "settings" and unread_training_settings(file.parent, [file.name]):
                unjudged = replace(unjudged, always_told=True)
            seen.judged.append(Judgement(not_judged=(unjudged,)))
        elif kinds == MODEL_BELOW:
            from truetune.checks.inspect_checkpoint import checkpoint_report

            # The budget keeps a folder of large models from taking minutes; a model that is named is read whole.
            seen.add(checkpoint_report(path, base=seen.base, spec=seen.spec, budget=BYTES_BELOW))
        elif kinds[0] in config_readers():
            _check_settings(path, seen)
        else:
            seen.add(CHECK_BY_KIND[kinds[0]](path, seen))
    except TruetuneError as error:
        unread = _unread_path(path, error, is_named=False)
        # Who keeps a log beside a run thinks that it was read; notes in a text file are no log.
        is_log = kinds[0] in ("log", "run") and Path(path).suffix != ".txt"
        seen.judged.append(Judgement(not_judged=(replace(unread, always_told=is_log),)))


def _unread_path(path: str, error: TruetuneError, *, is_named: bool) -> NotJudged:
    """What could not be read, with the reason that its reader gives."""
    # The reason stands beside the path in the report: twice it would be too long for a line.
    why = str(error).removeprefix(f"{path}: ").partition("; expected data")[0]
    return NotJudged(
        path,
        why,
        unlock="name what truetune reads: data, settings, scripts, logs, models",
        asked=is_named,
    )


def _of_deepspeed(path: str) -> NotJudged:
    """Settings of DeepSpeed: what they contradict stands in the script or the settings that name them."""
    return NotJudged(
        "the DeepSpeed configuration",
        "it is compared with the script or the settings that name it",
        place=path,
        unlock="name the script, or the settings, that train with it",
    )


def _of_unknown_program(path: str) -> NotJudged:
    """Settings whose keys are common words: rules on keys, defaults and absences hold for one program only."""
    return NotJudged(
        "the settings",
        "no key of theirs is that of one program alone: a script may read them",
        place=path,
        unlock=advise_how_to_identify(located_document.read_located_document(Path(path)).value),
    )


def _of_launch(path: str) -> NotJudged:
    """How accelerate starts a script: which GPUs the machine has that it starts on is not in the file."""
    value = located_document.read_located_document(Path(path)).value
    settings = ", ".join(f"{key}: {value[key]}" for key in LAUNCH_KEYS if key in value)
    return NotJudged(
        "the accelerate launch configuration",
        f"no rule reads it ({settings}); each process uses one GPU, and GPUs beyond their number stay"
        " idle",
        place=path,
        unlock="compare num_processes with the number of GPUs",
    )


def kinds_of(path: str, trained_by: TrainerName | None = None) -> tuple[InputKind, ...]:
    """As `recognise`; a glob, a URI and the name of a cached data set of the hub name data."""
    if may_be_hub_name(path):
        if find_cached_dataset_files(path):
            return ("data",)
        if not did_you_mean_path(path):
            raise UsageError(message_for_uncached_dataset(path))
    return (
        ("data",)
        # `run[1].jsonl` is a file before it is a pattern.
        if "://" in path or (glob.has_magic(path) and not Path(path).exists())
        else recognise_kinds(path, trained_by)
    )


def _is_settings(file: Path) -> bool:
    """Does a reader of settings know the file?"""
    try:
        return recognise_kinds(file)[0] in config_readers()
    except UsageError:
        return False


def _check_settings(path: str, seen: PathsCheck) -> None:
    """What the rules on settings say, and the run that they describe, where its data and tokenizer are in the files."""
    config = read_config(path, seen.spec.trained_by)
    over = {name: getattr(seen.spec, name) for name in seen.spec.model_fields_set}
    # TRL's own default cuts at 1,024, and its table of defaults knows where: a limit from here would override that.
    length = {} if config.stack == "trl" else {"max_length": config.limit}
    run = config.spec.model_copy(update=length | over)
    # What the trainer cached is what it will train on, whatever the rows say by now.
    run = run.model_copy(update={"data": (*run.data, *find_prepared_cache(config))})
    seen.trainers.config(config)
    seen.judged.append(judge_settings(config, seen.spec, seen.uses))
    facts = [
        ("keys of", config.version),
        (
            "trains by",
            run.training.method if _settings_train(config) else "nothing: there is no do_train",
        ),
        *(("note", note) for note in config.notes),
    ]
    if not run.data and trains_demo_data_alone(config):
        seen.demo_config = path
    if not run.data:
        unjudged = NotJudged(
            "the data of these settings",
            "no file of it is on this machine",
            place=path,
            unlock="name DATA and -t TOKENIZER",
            asked=False,
        )
        seen.judged.append(Judgement(not_judged=(unjudged,)))
    else:
        is_users = bool(seen.spec.tokenizer or seen.spec.model)
        seen.no_tokenizer = _lacking_tokenizer(run, is_users=is_users)
        if seen.no_tokenizer:
            run = run.model_copy(update={"tokenizer": None, "model": None})
        seen.run, seen.joined = run, _joins_texts(config)
        if config.own_prompt:
            seen.own_prompt = True
            facts.append(
                (
                    "prompt",
                    "the stack's own, not the tokenizer's template: rules on rows and pairs alone",
                )
            )
    seen.subjects.append(Subject(title_of_kind(config.stack), path, tuple(facts)))


def _settings_train(config: Config) -> bool:
    """LLaMA-Factory merges, serves and evaluates by the same files."""
    return config.stack != "llama-factory" or bool(config.raw.get("do_train"))


def _joins_texts(config: Config) -> bool:
    """Does the stack make rows of its own out of the texts?"""
    training, sets = config.spec.training, config.raw.get("datasets")
    kinds = (
        [str(item.get("type")) for item in sets if isinstance(item, dict)]
        if isinstance(sets, list)
        else []
    )
    wraps = bool(training.packing) and training.packing_strategy in ("wrapped", "bfd_split")
    return wraps or training.method == "pretrain" or "completion" in kinds


def _lacking_tokenizer(run: RunSpec, *, is_users: bool = False) -> str:
    """Why the tokenizer that settings or a script name can't be used; empty where it can.

    It is loaded, for a folder may be there and hold an adapter alone, other weights, or a broken file: whoever did not
    name it himself is told so, and everything else is still judged. One that the user names is loaded where it is
    used, and its error is his answer.
    """
    named = run.tokenizer or run.model
    if not named:
        return "the settings name none"
    try:
        folder = find_tokenizer_folder(named)
        if is_users:
            return ""
        prepare_probes_of_run(run)
    except (TokenizerError, TemplateError, SpecError) as error:
        return _first_words(error)
    # Of a config.json alone transformers makes an empty tokenizer, with no word.
    return (
        f"{folder} holds no file of a tokenizer (tokenizer.json)" if lacks_tokenizer(folder) else ""
    )


def _first_words(error: TruetuneError) -> str:
    """What an error says, without what transformers appends: its own advice behind "Couldn't", on options that truetune
    has not."""
    return str(error).partition("\n")[0].partition(": Couldn't")[0]


def _holds_rows(path: str, spec: RunSpec) -> bool:
    """Is it a file of rows, and nothing else?"""
    try:
        return Path(path).is_file() and kinds_of(path, spec.trained_by) == ("data",)
    except TruetuneError:
        return False  # what cannot be read is said where it is looked at


def _lint_sources(path: str, seen: PathsCheck) -> Report:
    """What the rules on source say; the scripts are noted as what may train the rows."""
    from truetune.checks.lint import lint

    seen.trainers.sources.append(path)
    spec = seen.spec
    return lint(
        [path],
        select=spec.select,
        ignore=spec.ignore,
        rows=seen.rows_beside,
        uses=seen.uses,
        tokenizer=spec.tokenizer,
    )


def _lint_commands(path: str, seen: PathsCheck) -> Report:
    """What the rules on commands say."""
    from truetune.checks.lint import lint

    spec = seen.spec
    return lint(
        [path], select=spec.select, ignore=spec.ignore, tokenizer=spec.tokenizer, uses=seen.uses
    )


HEAD_BYTES = 4_096
LOG_NAME = re.compile(
    r"(?:^|[\W_])(?:log|std(?:out|err)|console|nohup|output|traceback|error)s?(?:$|[\W_\d])", re.I
)
"""Text files whose name says that they are printed output, and not notes or a list of packages"""


def _diagnose_log(path: str, seen: PathsCheck) -> Report:
    """What the rules on logs say; a text file that is no log is not judged."""
    from truetune.checks.diagnose_log import diagnose

    gpus = read_gpu_file(Path(path))
    measured = [gpu for gpu in gpus if gpu.total]
    if measured and GPU_FILE_MARK.search(_read_start(Path(path))):
        facts = (("GPUs", describe_gpus(measured)),)
        subject = Subject("output of nvidia-smi", path, facts)
        return Report(spec=seen.spec, subjects=(subject,), findings=(), seconds=0)
    try:
        return diagnose(path, spec=seen.spec, files_beside=seen.files_beside())
    except DataError as error:
        is_text = (
            Path(path).suffix.lower() == ".txt"
        )  # notes and lists of packages are called so too
        if not is_text and not (seen.several and Path(path).is_file()):
            raise
        unread = NotJudged(
            "the text file" if is_text else "the log",
            str(error).removeprefix(f"{path}: "),
            place=path,
            unlock="name the log of a run",
            asked=not is_text,
            always_told=LOG_NAME.search(Path(path).stem) is not None,
        )
        return Report(spec=seen.spec, findings=(), seconds=0, not_judged=(unread,))


GPU_FILE_MARK = re.compile(
    r"\A(?:.{0,200}\n){0,3}.{0,20}(?:NVIDIA-SMI|.{0,300}(?:memory\.used|utilization\.gpu))"
)
"""A file of nvidia-smi alone: it begins with its table or its columns; a log may hold one as well"""


def _read_start(path: Path) -> str:
    """The first characters of a file."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES).decode("utf-8", "replace")


def _diagnose_outputs(path: Path, seen: PathsCheck) -> None:
    """Judge the training that the outputs of a notebook show, or of the notebooks in a folder, as the log of a run."""
    from truetune.checks.diagnose_log import diagnose
    from truetune.logs.read_run_log import read_run

    notebooks = sorted(path.glob("*.ipynb")) if path.is_dir() else [path]
    for notebook in notebooks[:MAX_NOTEBOOKS]:
        if notebook.suffix != ".ipynb":
            continue
        try:
            log = read_run(notebook)
        except TruetuneError:
            continue  # its code is judged all the same, and few notebooks hold the log of a run
        if log.curve("loss") or log.curve("reward") or _ends_in_known_fault(log):
            seen.add(diagnose(str(notebook), spec=seen.spec, files_beside=seen.files_beside()))


def _ends_in_known_fault(log: RunLog) -> bool:
    """Does a cell end in an error that is known? A tutorial may show errors of other kinds on purpose."""
    failure = log.output.failure if log.output is not None else None
    return failure is not None and failure.message is not None


def _check_checkpoint(path: str, seen: PathsCheck) -> Report:
    """What the rules on checkpoints say."""
    from truetune.checks.inspect_checkpoint import checkpoint_report

    return checkpoint_report(path, base=seen.base, spec=seen.spec)


def _check_modelfile(path: str, seen: PathsCheck) -> Report:
    """What the rules on Modelfiles say."""
    from truetune.checks.inspect_modelfile import inspect_modelfile

    return inspect_modelfile(path, seen.spec)


CHECK_BY_KIND: Mapping[InputKind, Callable[[str, PathsCheck], Report]] = {
    "source": _lint_sources,
    "notebook": _lint_sources,
    "commands": _lint_commands,
    "run": _diagnose_log,
    "log": _diagnose_log,
    "model": _check_checkpoint,
    "model config": _check_checkpoint,
    "adapter": _check_checkpoint,
    "modelfile": _check_modelfile,
}


REASON_BY_UNJUDGED_KIND: Mapping[InputKind, Callable[[str], NotJudged]] = {
    "settings": _of_unknown_program,
    "accelerate": _of_launch,
    "deepspeed": _of_deepspeed,
}
"""Configurations that no rule reads alone"""
MAX_NOTEBOOKS = 20
"""Notebooks of a folder whose outputs are read: each is parsed whole"""
MEMBER_KINDS: frozenset[InputKind] = frozenset(
    (*REASON_BY_UNJUDGED_KIND, "commands", "log", "modelfile", "run")
)
"""What is looked at file by file where it lies in a folder of several kinds"""
WHOLE_FOLDER_KINDS: frozenset[InputKind] = frozenset(
    ("encoded", "run", "adapter", "model", "model config", "tokenizer", "truetune")
)
"""What a folder is as a whole"""
CHECKED_KINDS = frozenset((*SOURCE_KINDS, *CHECK_BY_KIND, "data", "encoded", "tokenizer"))


def _last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run."""
    numbered = [
        path for path in folder.glob("checkpoint-*") if path.name.partition("-")[2].isdecimal()
    ]
    return max(numbered, key=lambda path: int(path.name.partition("-")[2]), default=None)
