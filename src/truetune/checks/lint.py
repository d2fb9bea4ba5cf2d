"""Lints Python files, notebooks and files of commands: runs the rules on source and commands, and
those on the settings in them, and applies fixes.
"""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from truetune.checks.apply_proved_source_fixes import SourceChange, fix_module, write_change
from truetune.checks.find_uses_of_weight_folders import find_weight_uses
from truetune.checks.findings import Finding, sort_findings
from truetune.checks.judge_settings import judge_settings
from truetune.checks.judgement import Examined, Judgement, NotJudged, requested_parts_not_judged
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import CommandRule, ModelfileRule, SourceRule
from truetune.checks.rule_catalogue import all_rules, select_rules
from truetune.checks.rule_families import former_code, former_names
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.checks.source.evidence.files_where_each_row_makes_one_example_at_most import (
    local_row_files_of_only_trainer,
    training_row_limit,
)
from truetune.checks.source.evidence.training_row_count_in_notebook_output import (
    printed_training_rows,
)
from truetune.checks.source.source_not_parsed import SourceNotParsed
from truetune.errors import DataError, SpecError
from truetune.parsing.docker_compose_services_as_commands import is_compose_file
from truetune.parsing.kubernetes_containers_as_commands import is_manifest_with_containers
from truetune.parsing.ollama_modelfiles_in_shell_scripts import modelfiles_in_script
from truetune.parsing.shell_commands import (
    SCRIPT_SUFFIXES,
    CommandFile,
    is_command_file,
    read_command_file,
)
from truetune.settings.config import WeightUse
from truetune.settings.run_spec import RunSpec, Severity
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)
from truetune.source.find_file_of_import import ImportSearch
from truetune.source.find_source_files import SOURCE_SUFFIXES, find_source_files
from truetune.source.find_suppression_comments import IgnoreComment, find_ignore_comments
from truetune.source.group_files_by_imports import Program, group_by_imports
from truetune.source.notebook_commands import read_notebook_commands
from truetune.source.parsed_source_file import (
    Module,
    decode_source_file_with_codec,
    empty_module_of_unreadable_file,
    parse_module,
)
from truetune.source.settings_of_script_as_configs import extract_configs

LIBRARIES = frozenset({
    "torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "unsloth", "axolotl",
    "llamafactory", "lightning", "pytorch_lightning", "torchtune", "deepspeed", "bitsandbytes", "vllm",
    "sentence_transformers", "evaluate", "setfit", "swift", "mlx_lm", "lm_eval", "keras", "tensorflow", "jax",
})  # fmt: skip
"""Libraries of training, its data and its evaluation; code without one of them has nothing that a rule looks at"""
TRAININGS = (
    "*Trainer",
    "*Trainer.*",
    "torch.optim.*",
    "bitsandbytes.optim.*",
    "*.FastLanguageModel.get_peft_model",
)
"""Calls of a script that trains"""
CORRECT_SYNTAX = "correct the syntax, or leave the file out"


@dataclass(frozen=True, kw_only=True, repr=False)
class LintReport(Report):
    """What is wrong in sources, after what was fixed."""

    changes: tuple[SourceChange, ...] = ()
    """What was fixed; with `diff`, what would be"""
    files: int
    suppressed: int
    """Findings that a comment `# truetune: ignore` keeps quiet"""
    trains: bool = True
    """Does one of the files train, as far as its code says? Others generate, or evaluate"""


@dataclass(frozen=True, slots=True)
class FileResult:
    """What there is to say on one module."""

    findings: tuple[Finding, ...]
    judged: Judgement
    """With findings that are suppressed"""
    suppressed: int = 0
    applies: bool = True
    """Has a rule anything to look at in it?"""
    trains: bool = True


def lint(
    paths: Iterable[str | PathLike[str]],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    fail_on: Severity = "error",
    allow_unjudged: bool = False,
    fix: bool = False,
    unsafe: bool = False,
    diff: bool = False,
    rows: Sequence[str] = (),
    progress: Callable[[int, int], object] | None = None,
    uses: tuple[WeightUse, ...] = (),
    tokenizer: str | None = None,
) -> LintReport:
    """Look at Python files and notebooks, and at those in folders; what one imports from another is known in both.

    `fix` applies the safe fixes, `unsafe` the others too; with `diff` nothing is written. `rows` are files of training
    rows that were named beside the scripts, for those that do not say where theirs are; `uses` is what other files do
    with weights, `tokenizer` the folder that stands for the one that scripts name. `progress` is called with the
    number of files that are read and of all. Raises UsageError for a path that is not there, or a file that can't be
    written.
    """
    started = time.perf_counter()
    spec = RunSpec(
        select=tuple(select), ignore=tuple(ignore), fail_on=fail_on, allow_unjudged=allow_unjudged
    )
    if tokenizer is not None:
        spec = spec.model_copy(update={"tokenizer": tokenizer})
    named = list(map(str, paths))
    results: dict[str, FileResult] = {}
    changes: list[SourceChange] = []
    # Paths without a note stand in the report as well: it says of each what it is.
    facts: dict[str, list[tuple[str, str]]] = {name: [] for name in named}
    files = {str(file): name for name, file in find_source_files(named)}
    commands, scripts = _split_commands_from_python(files)
    uses = (*uses, *find_weight_uses(named))
    makes_changes = any((fix, unsafe, diff))
    results |= {file: lint_commands(file, spec, uses) for file in commands}
    for module in _read_modules_in_import_groups(scripts, named):
        if progress is not None:
            progress(len(results), len(files))
        result = lint_module(module, spec, rows, uses)
        if makes_changes and not _is_unnamed_link(module.path, named):
            change = _change_by_helpful_fixes(module, result, spec, unsafe)
            if change is not None:
                changes.append(change)
                # What was fixed is judged again, so that the report says what is left.
                result = result if diff else _write_and_lint(change, spec, rows, uses)
        elif fix:
            note = f"{module.path}: not changed, for it is a link; name the file itself"
            facts[files[module.path]].append(("note", note))
        results[module.path] = result
    return _make_report(spec, results, files, facts, changes, time.perf_counter() - started)


def _is_unnamed_link(path: str, named: Sequence[str]) -> bool:
    """Is a path a link that was found in a folder and not named itself?

    It may lead out of the folder, so it is not changed.
    """
    return Path(path).is_symlink() and path not in named


def _split_commands_from_python(files: Iterable[str]) -> tuple[list[str], list[str]]:
    """The files of commands (shell, job scripts), and those of Python."""
    commands: list[str] = []
    scripts: list[str] = []
    for file in files:
        (commands if is_command_file(Path(file)) else scripts).append(file)
    return commands, scripts


def _write_and_lint(
    change: SourceChange, spec: RunSpec, rows: Sequence[str], uses: tuple[WeightUse, ...]
) -> FileResult:
    """Write a file as it is after its fixes, and say what is left in it."""
    write_change(Path(change.before.path), change)
    return lint_module(change.after, spec, rows, uses)


def _make_report(
    spec: RunSpec,
    looks: Mapping[str, FileResult],
    files: Mapping[str, str],
    facts: Mapping[str, list[tuple[str, str]]],
    changes: Sequence[SourceChange],
    seconds: float,
) -> LintReport:
    """The report over all files, in the order in which they were named.

    Args:
        spec: what chose the rules.
        looks: what was seen, by the file's path.
        files: the path that was named, by the file's path.
        facts: notes, by the path that was named.
        changes: what was fixed.
        seconds: how long it took.
    """
    in_order_of_files = [looks[path] for path in files]
    judgement = Judgement.of(
        [
            _join_over_files([seen.judged for seen in in_order_of_files]),
            *_files_without_relevant_code(in_order_of_files),
        ]
    )
    return LintReport(
        spec=spec,
        subjects=tuple(
            Subject(_describe_path_kind(name), name, tuple(notes)) for name, notes in facts.items()
        ),
        findings=sort_findings(finding for seen in in_order_of_files for finding in seen.findings),
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=seconds,
        changes=tuple(changes),
        files=len(looks),
        suppressed=sum(seen.suppressed for seen in in_order_of_files),
        trains=any(seen.trains for seen in in_order_of_files),
    )


def lint_module(
    module: Module, spec: RunSpec, rows: Sequence[str] = (), uses: tuple[WeightUse, ...] = ()
) -> FileResult:
    """What the rules that `spec` selects find in one module, in the order of its text; `rows`, `uses` as in `lint`."""
    parts = [
        _with_path_in_failures(run_rules(module, choose_rules(spec, SourceRule)), module.path),
        _judge_unparsed_code(module, spec),
        *_judge_settings_of_module(module, spec, rows, uses),
    ]
    commands = read_notebook_commands(module)
    of_commands = _judge_commands(commands, spec, uses) if commands is not None else Judgement()
    judgement = Judgement.of([*parts, of_commands])
    # A file without any of the libraries applies where a rule has a place in it: such a place may need none.
    applies = bool(of_commands.examined or judgement.findings)
    applies = applies or _uses_known_library(module) or _has_examined_places(judgement)
    if not applies or (module.broken and not module.tree.body):
        judgement = replace(
            judgement,
            examined=(),
            not_judged=tuple(requested_parts_not_judged(judgement.not_judged)),
        )
    findings = list(dict.fromkeys(judgement.findings))
    # Duplicates: a rule of commands and one of source may find one line of a notebook alike.
    comments = find_ignore_comments(module)
    kept = [
        f
        for f in findings
        if not any(_is_ignored_by_comment(module, f, comment) for comment in comments)
    ]
    return FileResult(
        tuple(sorted(kept, key=lambda f: _finding_offset(module, f))),
        judgement,
        len(findings) - len(kept),
        applies,
        _does_module_train(module),
    )


def _judge_settings_of_module(
    module: Module, spec: RunSpec, rows: Sequence[str], uses: tuple[WeightUse, ...]
) -> list[Judgement]:
    """The judgements on the settings that a module makes, with what is known of the rows that they
    train on.
    """
    try:
        configs = extract_configs(module)
        if not configs:
            return []
        files = local_row_files_of_only_trainer(module)
        limit = training_row_limit(module) if files else None
        # Asked for only with rows: the limit of a set that is not here limits nothing.
        printed = printed_training_rows(module)
        return [
            judge_settings(
                replace(
                    config, row_files=files or tuple(rows), row_limit=limit, printed_rows=printed
                ),
                spec,
                uses,
            )
            for config in configs
        ]
    except SpecError as error:
        unread = NotJudged("settings in the code", str(error), place=module.path)
        return [Judgement(not_judged=(unread,))]


def lint_commands(path: str, spec: RunSpec, uses: tuple[WeightUse, ...] = ()) -> FileResult:
    """What the rules that `spec` selects find in one shell script, job file or Dockerfile, and in the settings that
    its commands give as options; `uses` as in `lint`."""
    try:
        file = read_command_file(Path(path))
    except DataError as error:
        unread = NotJudged(
            "the commands", str(error), place=path, unlock="save it as UTF-8, or leave the file out"
        )
        return FileResult((), Judgement(not_judged=(unread,)), trains=False)
    judgement = _judge_commands(file, spec, uses)
    applies = bool(judgement.findings or judgement.examined)
    # A Dockerfile or a CI script that starts no training is no subject of these rules: it is left out without a word.
    if not applies:
        judgement = replace(
            judgement, not_judged=tuple(requested_parts_not_judged(judgement.not_judged))
        )
    return FileResult(judgement.findings, judgement, applies=applies, trains=False)


def _judge_commands(file: CommandFile, spec: RunSpec, uses: tuple[WeightUse, ...]) -> Judgement:
    """What the rules say on commands, on settings that they give as options, and on Modelfiles that they write."""
    parts = [_with_path_in_failures(run_rules(file, choose_rules(spec, CommandRule)), file.path)]
    parts += [
        run_rules(modelfile, choose_rules(spec, ModelfileRule))
        for modelfile in modelfiles_in_script(Path(file.path))
    ]
    try:
        parts += [
            judge_settings(config, spec, uses)
            for config in configs_of_commands_without_settings_file(file)
        ]
    except SpecError as error:
        unread = NotJudged("settings in the commands", str(error), place=file.path)
        parts.append(Judgement(not_judged=(unread,)))
    return Judgement.of(parts)


def _does_module_train(module: Module) -> bool:
    """Does a file train, or prepare what is trained: a trainer, a backward pass, an optimizer, data
    without generation?
    """
    if any(module.calls(*TRAININGS)) or any(module.methods("backward", "train_batch")):
        return True
    return not any(module.methods("generate", "evaluate", "simple_evaluate"))


def _uses_known_library(module: Module) -> bool:
    """Does a file use a library whose calls the rules know?"""
    names = [alias.name for node in module.nodes(ast.Import) for alias in node.names]
    names += [node.module or "" for node in module.nodes(ast.ImportFrom)]
    used = any(name.partition(".")[0] in LIBRARIES for name in names)
    return used or any(module.methods("apply_chat_template"))


def _has_examined_places(judgement: Judgement) -> bool:
    """Has any rule examined a place?

    A script that asks a server or scores answers needs no known library.
    """
    return any(
        examined.rule != SourceNotParsed.name() and examined.of for examined in judgement.examined
    )


def _judge_unparsed_code(module: Module, spec: RunSpec) -> Judgement:
    """The parts of a file that could not be parsed, as not judged; empty if the rule that reports
    them is left out by name.
    """
    is_selected = SourceNotParsed in select_rules((), spec.ignore, "source")
    return Judgement(
        not_judged=tuple(
            NotJudged(
                f"code of {module.path}",
                f"not parsed as Python: {broken.reason}",
                place=":".join(
                    map(str, (module.path, *module.line_and_column_of_syntax_problem(broken)))
                ),
                unlock=CORRECT_SYNTAX,
                asked=is_selected,
            )
            for broken in module.broken
        )
    )


def _join_over_files(parts: Sequence[Judgement]) -> Judgement:
    """The judgements of files as one, in which a rule on source has one line: what it examined in all of them.

    It does not apply where no file has a place that it is about.
    """
    kinds = {
        rule.name(): rule
        for rule in all_rules("source", "commands")
        if issubclass(rule, SourceRule | CommandRule)
    }
    whole = Judgement.of(parts)
    counts = _count_examined_places_by_rule(parts, kinds)
    figures = {name: _measurement_over_files(kinds[name], count) for name, count in counts.items()}
    examined = (_with_total_figure(one, figures.get(one.rule)) for one in whole.examined)
    applies = {*counts, *(finding.rule for finding in whole.findings if finding.rule in kinds)}
    # A rule that one file gave nothing to look at has judged the others: "it is about ..." would be said of all.
    not_judged = (part for part in whole.not_judged if part.asked or part.what not in applies)
    return Judgement(whole.findings, tuple(dict.fromkeys(examined)), tuple(not_judged))


def _count_examined_places_by_rule(
    parts: Sequence[Judgement], names: Container[str]
) -> Counter[str]:
    """How many places the rules of these names examined in all files."""
    counts: Counter[str] = Counter()
    for part in parts:
        for examined in part.examined:
            if examined.rule in names:
                counts[examined.rule] += examined.of or 0
    return counts


def _measurement_over_files(rule: type[SourceRule] | type[CommandRule], count: int) -> Measurement:
    """The figure of a rule over all files."""
    return (
        rule.measurement_of_sound_commands(count)
        if issubclass(rule, CommandRule)
        else rule.looks_at.measurement_without_faults(count)
    )


def _with_total_figure(examined: Examined, figure: Measurement | None) -> Examined:
    """What was examined, with the figure over all files if its rule counts."""
    if figure is None:
        return examined
    return replace(examined, figure=figure.text, count=figure.count, of=figure.of)


def _files_without_relevant_code(looks: Sequence[FileResult]) -> Iterator[Judgement]:
    """Files in which no rule has anything to look at: said, for they are no part of `no findings`."""
    count = sum(not seen.applies and not seen.judged.not_judged for seen in looks)
    if count:
        what = f"{count:,} of {len(looks):,} file{'s' * (len(looks) != 1)}"
        reason = "no code that trains: no library of training is imported, and no command serves or launches"
        yield Judgement(not_judged=(NotJudged(what, reason, asked=False),))


def _with_path_in_failures(judgement: Judgement, path: str) -> Judgement:
    """The judgement of a file, in which the rules that failed name the file."""
    named = (
        replace(part, reason=f"{path}: {part.reason}") if part.asked else part
        for part in judgement.not_judged
    )
    return replace(judgement, not_judged=tuple(named))


def _is_ignored_by_comment(module: Module, finding: Finding, comment: IgnoreComment) -> bool:
    """Does an ignore comment silence a finding, by its name, its code (of today or before) or its fault?"""
    # Former ones too: a comment in a file outlives the renaming of a rule.
    names = (
        finding.rule,
        finding.code,
        finding.fault,
        *former_names(finding.rule),
        former_code(finding.code),
    )
    return comment.suppresses_rule_at_offset(_finding_offset(module, finding), *names)


def _finding_offset(module: Module, finding: Finding) -> int:
    """Where in the file the first case of a finding is, in characters."""
    case = next(iter(finding.cases), None)
    if case is None or case.line is None or case.file != module.path:
        return 0
    # A case of another file (a config that the script names) has no place in this text.
    lines = module.file_lines
    return lines.starts[min(case.line, len(lines)) - 1] + (case.column or 1) - 1


def _read_modules_in_import_groups(files: Iterable[str], named: Sequence[str]) -> Iterator[Module]:
    """Every file, parsed; those that import each other are judged together, group after group."""
    sources_of: dict[str, _Text] = {file: _read_text(file) for file in files}
    imports = ImportSearch(sources_of, named)
    for group in group_by_imports(
        [(path, source.text) for path, source in sources_of.items()], imports
    ):
        modules = [_parse_module(path, sources_of.pop(path)) for path in group]
        # pop: the text is in the module now, and a repository may hold a gigabyte of it.
        yield from modules if len(modules) == 1 else Program(modules, imports).modules


class _Text(NamedTuple):
    """The text of a file, or why it could not be read."""

    text: str
    codec: str
    fault: str


def _read_text(path: str) -> _Text:
    """A file's text, or why it can't be read."""
    try:
        return _Text(*decode_source_file_with_codec(Path(path)), "")
    except DataError as error:
        return _Text("", "", str(error).removeprefix(f"{path}: "))


def _parse_module(path: str, source: _Text) -> Module:
    """A file parsed; one that can't be read is a module without code."""
    if source.fault:
        return empty_module_of_unreadable_file(path, source.fault)
    try:
        return parse_module(source.text, path, source.codec)
    except DataError as error:
        return empty_module_of_unreadable_file(path, str(error).removeprefix(f"{path}: "))


def _change_by_helpful_fixes(
    module: Module, seen: FileResult, spec: RunSpec, unsafe: bool
) -> SourceChange | None:
    """The change that all helpful fixes make to a file; None if none helps.

    Each is tried in a small group of the files that it runs with.
    """
    if not any(finding.fix is not None for finding in seen.findings):
        return None
    if module.program is None:
        # A fix may break a file that imports this one: the rules are run over the few that belong together, not over
        # all.
        return fix_module(module, seen.findings, lambda tried: lint_module(tried, spec), unsafe)
    near = module.program.module_in_own_small_group(module)
    program = near.program
    assert program is not None
    return fix_module(
        near,
        lint_module(near, spec).findings,
        lambda tried: lint_module(program.with_text_changed(tried), spec),
        unsafe,
    )


MAX_NAMED_FILES = 100
"""Files of a folder by which it is called. Chosen: the first hundred are of all its kinds"""


def _describe_folder(folder: Path) -> str:
    """A folder in words, by the files in it that are read: Python sources, shell scripts, results
    of lm_eval.
    """
    files = [file for _, file in islice(find_source_files([str(folder)]), MAX_NAMED_FILES)]
    if not files or any(file.suffix in SOURCE_SUFFIXES for file in files):
        has_jobs = any(file.suffix in SCRIPT_SUFFIXES for file in files)
        return f"folder of Python sources{' and shell scripts' * has_jobs}"
    if all(file.suffix == ".json" for file in files):
        return "folder of results of lm_eval"
    return "folder of shell scripts"


def _describe_path_kind(name: str) -> str:
    """A path in words, by its kind: `notebook`, `compose file`, `shell script`, a folder of these."""
    path = Path(name)
    if path.is_file() and is_command_file(path):
        if path.suffix == ".json":
            return "results of lm_eval"
        if is_manifest_with_containers(path):
            return "manifest of Kubernetes"
        return "compose file" if is_compose_file(path) else "shell script"
    if path.is_dir():
        return _describe_folder(path)
    return "notebook" if path.suffix == ".ipynb" else "Python source"
