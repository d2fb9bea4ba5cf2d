"""Reads the log of a run, whatever wrote it, from its folder, a checkpoint or one file.

The path may be a run's folder, a checkpoint or one file. In a folder the first source that has a record is taken, in
this order: trainer_state.json (it has all steps, and is written by the trainer itself), what loggers write, console
output, files of results. One source is read and not all: the same loss at shifted steps would look like two runs. What
was printed is read besides, for the messages that no logger keeps. Damage is noted and not raised: the log of a run
that failed is the one that is asked for most.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from truetune.errors import DataError, SpecError
from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.parse_printed_records import read_console_file
from truetune.logs.read_jsonl_csv_json_logs import (
    add_trainer_state,
    load_log_json,
    read_csv_log,
    read_json_log,
    read_jsonl_log,
)
from truetune.logs.read_notebook_and_kaggle_output import read_notebook_output
from truetune.logs.read_tensorboard_events import read_event_file
from truetune.logs.read_wandb_offline_run import read_wandb_file
from truetune.logs.refuse_folder_of_several_runs import (
    STATE_FILE,
    find_runs_in_subfolders,
    last_step_of_state,
    refuse_multiple_runs,
)
from truetune.logs.run_log import RunLog, checkpoint_step
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.parsing import InputLimitError
from truetune.settings import located_document
from truetune.settings.suggest_spelling import did_you_mean_path

SEARCHED_NAMES = (
    f"{STATE_FILE} (also in checkpoint-N), TensorBoard event files, a W&B offline run (run-*.wandb), "
    "*.jsonl, metrics.csv, console output (*.log, *.out, *.err), all_results.json"
)
CONSOLE_GLOBS = ("nohup.out", "*.log", "*.out", "*.err", "log*.txt", "std*.txt", "files/output.log")
"""Console output in the folder of a run"""
MAX_OUTPUT_AGE_S = 60.0
"""Output that ended so long before the trainer's last state is of an earlier run. Chosen, not measured: a trainer
prints its results within seconds of its state; a longer time takes output of an earlier run for this one's"""
MAX_LOG_BYTES = 1 << 32
"""Chosen, not measured: a longer file is no log of one run, and reading it takes minutes"""
GENERATION_SPEED = re.compile(r"\btok(?:en)?s?\s*(?:/|per)\s*s(?:ec(?:ond)?)?\b", re.I)
"""How scripts print the speed of a generation: `5.1 tok/s`, `tokens per second`"""
SETTINGS_BESIDE = (
    "fp16",
    "bf16",
    "max_grad_norm",
    "save_steps",
    "gradient_accumulation_steps",
    "lr_scheduler_type",
)
"""Settings on which advice depends"""
ARGUMENTS_FILES: dict[str, tuple[str, ...]] = {
    "training_args.yaml": SETTINGS_BESIDE,
    # Any script may write one of this name: how it accumulates is compared with the log first (`loss-is-a-sum`).
    "args.json": tuple(name for name in SETTINGS_BESIDE if name != "gradient_accumulation_steps"),
}
"""Files in which LLaMA-Factory and ms-swift keep their settings beside a log -> those that are taken from them"""
HEAD_BYTES = 4_096
"""Enough to tell text from binary content, and to see what a script prints"""
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LogReader = Callable[[Path, RunLogBuilder], None]

LOG_FORMATS: tuple[tuple[str, tuple[str, ...], LogReader], ...] = (
    ("TensorBoard", ("*tfevents*",), read_event_file),
    ("W&B", ("*.wandb",), read_wandb_file),
    ("JSONL", ("*.jsonl", "*.ndjson"), read_jsonl_log),
    ("CSV", ("*.csv",), read_csv_log),
    ("notebook", ("*.ipynb",), read_notebook_output),
    ("JSON", ("*.json",), read_json_log),
    ("printed output", ("*.log", "*.txt", "*.out", "*.err"), read_console_file),
    ("printed output", ("*",), read_console_file),
)
"""What a file is by its name, and console output where the name says nothing (`nohup.out`, `run.log.1`, `stderr`); a
folder is looked through in the order of `IN_FOLDER`"""

FOLDER_GLOBS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("JSONL", ("trainer_log.jsonl", "logging.jsonl", "*log*.jsonl", "*metrics*.jsonl")),
    (
        "TensorBoard",
        ("*tfevents*", "runs/*/*tfevents*", "*/*tfevents*", "lightning_logs/*/*tfevents*"),
    ),
    (
        "W&B",
        ("*.wandb", "offline-run-*/*.wandb", "wandb/offline-run-*/*.wandb", "wandb/run-*/*.wandb"),
    ),
    ("CSV", ("metrics.csv", "*/metrics.csv", "lightning_logs/*/metrics.csv")),
    ("printed output", CONSOLE_GLOBS),
    (
        "JSON",
        (
            "all_results.json",
            "train_results.json",
            "files/wandb-summary.json",
            "wandb-summary.json",
        ),
    ),
)


def read_run(path: str | PathLike[str]) -> RunLog:
    """The log at `path`: a folder of a run, a checkpoint in it, or one file.

    Raises DataError where there is no log, or it can't be read at all, UsageError where a folder holds several runs;
    what is cut off or damaged is noted in `RunLog.notes`.
    """
    where = Path(path)
    try:
        if where.is_dir():
            refuse_multiple_runs(where)
            return _read_best_source_of_folder(where)
        if where.is_file():
            return _read_single_file(where)
    except OSError as error:
        raise DataError(f"{where}: it can't be read ({error.strerror or error})") from None
    raise DataError(
        f"{where}: there is no such file or folder; the folder of a run was"
        f" expected{did_you_mean_path(where)}"
    )


def is_folder_of_run_log(path: str | PathLike[str]) -> bool:
    """Does a folder hold the log of a run, by the names of its files?"""
    where = Path(path)
    return where.is_dir() and (
        bool(_trainer_state_paths_by_step(where))
        or any(_matching_files(where, globs) for _, globs in FOLDER_GLOBS)
    )


def _read_best_source_of_folder(folder: Path) -> RunLog:
    """The log of a run's folder, by the best source in it. Raises DataError where there is none."""
    states = _trainer_state_paths_by_step(folder)
    if states:
        return add_console_output(_read_state_of_most_steps(folder, states), folder)
    for format, globs in FOLDER_GLOBS:
        for glob in globs:
            files = _matching_files(folder, (glob,))
            if files:
                chosen = _files_of_newest_run(files, format)
                log = _read_files_of_run(folder, format, chosen, len(files) - len(chosen))
                # a file of that name may be another's: `output.jsonl` holds answers, and then the next source counts
                if log.curves or format == "JSON" or shows_how_run_went(log.output):
                    return add_console_output(log, folder)
    # Tables of other names may be exports of W&B, or anything: one with a loss is a log.
    for file in _matching_files(folder, ("*.csv",)):
        log = _read_files_of_run(folder, "CSV", [file])
        if log.curve("loss"):
            return add_console_output(log, folder)
    below = next(find_runs_in_subfolders(folder), None)
    hint = f". There is a run below it: {below.path}" if below else ""
    raise DataError(f"{folder}: there is no log of a run in it; looked for {SEARCHED_NAMES}{hint}")


def _read_single_file(path: Path) -> RunLog:
    """The log in one file, by its name; text of any other name is read as console output. Raises DataError."""
    for format, globs, _ in LOG_FORMATS:
        if any(path.match(glob) for glob in globs) and (globs != ("*",) or is_text_file(path)):
            log = _read_files_of_run(
                path, "transformers" if path.name == STATE_FILE else format, [path]
            )
            if not log.curves and not log.facts and not shows_how_run_went(log.output):
                # Letters for the numbers: users save this text beside the run, where a record would be read as one.
                raise DataError(
                    f"{path}: no record of a run is in it, nor a traceback or progress; one like"
                    f' {{"step": N, "loss": X}} was expected{_hint_on_generation_output(path)}'
                )
            return log
    raise DataError(f"{path}: not known as a log; looked for {SEARCHED_NAMES}")


def _hint_on_generation_output(path: Path) -> str:
    """A hint what to do with the output of a script that generates, which has no records of a
    training.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", errors="replace")
    if GENERATION_SPEED.search(head) is None:
        return ""
    return (
        ". It prints how fast answers are generated: why that is slow, the script shows (truetune lint SCRIPT;"
        " truetune explain slow-generation)"
    )


def is_text_file(path: Path) -> bool:
    """Does a file hold text, by its first bytes? Asked if its name says nothing."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return bool(head) and (head.startswith(UTF_16_MARKS) or b"\0" not in head)


def shows_how_run_went(output: ConsoleOutput | None) -> bool:
    """Does console output show how a run went, even without a record of losses?"""
    if output is None:
        return False
    shown = output.failure or output.survived or output.ends or output.notices or output.total
    compiled = output.recompiled.line
    is_measured = output.prepared.rows or output.rank_differences or compiled or output.skips.steps
    return bool(shown or output.settings.server or is_measured)


def add_console_output(log: RunLog, folder: Path) -> RunLog:
    """The log with the newest console output in its folder added, unless that is of an earlier run."""
    files = [file for glob in CONSOLE_GLOBS for file in _matching_files(folder, (glob,))]
    if log.output is not None or not files:
        return log
    newest = max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))
    # A folder is used again for the next run, and its old output would explain the wrong one.
    state = folder / STATE_FILE
    if state.is_file() and state.stat().st_mtime > newest.stat().st_mtime + MAX_OUTPUT_AGE_S:
        note = (
            f"{newest.name}: it ended before the trainer's last state was written, so it is not"
            " read"
        )
        return replace(log, notes=(*log.notes, note))
    log_builder = RunLogBuilder(str(newest), "printed output")
    read_console_file(newest, log_builder)
    return replace(log, output=log_builder.output, files=(*log.files, str(newest)))


def _read_state_of_most_steps(folder: Path, states: dict[float, Path]) -> RunLog:
    """The log in the trainer_state.json that knows most steps; in an older one if that is cut off."""
    broken: list[DataError] = []
    # A run that was killed while it saved leaves its newest state cut off; the one before it has all steps but a few.
    for step in sorted(states, reverse=True):
        log_builder = RunLogBuilder(str(folder), "transformers")
        try:
            content = load_log_json(states[step])
            if not isinstance(content, dict):
                raise DataError(f"{states[step]}: a trainer_state.json is an object")
            add_trainer_state(content, log_builder)
        except DataError as error:
            broken.append(error)
            continue
        log_builder.files.append(str(states[step]))
        for cut in broken:
            log_builder.note_skipped(str(cut))
        _add_facts_of_folder(folder, log_builder)
        return log_builder.build()
    raise broken[0]


def _trainer_state_paths_by_step(folder: Path) -> dict[float, Path]:
    """Step -> trainer_state.json: the folder's own (half a step later) and those of its
    checkpoints.
    """
    states: dict[float, Path] = {}
    for child in folder.iterdir():
        step = checkpoint_step(child)
        state = child / STATE_FILE
        if step is not None and state.is_file():
            states[step] = state
    own = folder / STATE_FILE
    if own.is_file():
        # The folder's own state is written after the last checkpoint of the same step, and has the results of the run.
        step = last_step_of_state(own)
        states[(max(states, default=0) if step is None else step) + 0.5] = own
    return states


def _read_files_of_run(path: Path, format: str, files: list[Path], others: int = 0) -> RunLog:
    """The log in these files.

    Args:
        path: what the user named; a folder, or the one file.
        format: a name of LOG_FORMATS, or `transformers` for a trainer_state.json.
        files: the files of one run, in their order; each is a part of its own.
        others: how many files of the same kind are not read.

    Raises:
        DataError: a file is too large, or none of its content can be read.
    """
    log_builder = RunLogBuilder(str(path), format)
    if others:
        log_builder.note_skipped(
            f"{others:,} other files of logs: {files[-1].relative_to(path)} is the newest"
        )
    # a trainer_state.json is read as JSON: `transformers` only names who wrote it
    name_of_reader = "JSON" if format == "transformers" else format
    reader = next(reader for name, _, reader in LOG_FORMATS if name == name_of_reader)
    for file in files:
        if file.stat().st_size > MAX_LOG_BYTES:
            raise DataError(
                f"{file}: {file.stat().st_size / 1e9:.1f} GB; a log of at most 4 GB was expected"
            )
        log_builder.start_part()
        try:
            reader(file, log_builder)
        except InputLimitError as error:
            raise DataError(f"{file}: {error}") from None
        log_builder.files.append(str(file))
    _add_facts_of_folder(path if path.is_dir() else path.parent, log_builder)
    return log_builder.build()


def _files_of_newest_run(files: list[Path], format: str) -> list[Path]:
    """Those of several files that belong to the newest run: event files share a folder, others are
    one run each.
    """
    newest = max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))
    if format != "TensorBoard":
        return [newest]
    return sorted(
        (file for file in files if file.parent == newest.parent), key=lambda file: file.name
    )


def _add_facts_of_folder(folder: Path, log_builder: RunLogBuilder) -> None:
    """Add facts from other files of the run: its checkpoints, the class and the vocabulary of its
    model.
    """
    steps = sorted(
        step for child in folder.iterdir() if (step := checkpoint_step(child)) is not None
    )
    log_builder.checkpoints = tuple(steps)
    for name, settings in ARGUMENTS_FILES.items():
        arguments = folder / name
        if arguments.is_file():
            _add_training_arguments(arguments, settings, log_builder)
    # The newest checkpoint stands for the others: they are of one run.
    folders = [folder, *(folder / f"checkpoint-{step}" for step in steps[-1:])]
    for place in folders:
        config = place / "config.json"
        if config.is_file() and "vocab_size" not in log_builder.facts:
            _add_model_facts(config, log_builder)
        adapter = place / "adapter_config.json"
        if adapter.is_file() and "adapter" not in log_builder.facts:
            _add_adapter_kind(adapter, log_builder)


def _add_training_arguments(
    file: Path, settings: tuple[str, ...], log_builder: RunLogBuilder
) -> None:
    """Add these settings of the run that its program writes beside the log; those in the log itself
    take precedence.
    """
    try:
        content = located_document.read_located_document(file).value
    except SpecError as error:
        log_builder.note_skipped(str(error))
        return
    if isinstance(content, dict):
        for name in settings:
            if name in content:
                log_builder.facts.setdefault(name, content[name])


def _add_model_facts(config: Path, log_builder: RunLogBuilder) -> None:
    """Add the model's class, dtype and vocabulary from its config.json: they decide what a loss of
    guessing is.
    """
    try:
        content = load_log_json(config)
    except DataError as error:
        log_builder.note_skipped(str(error))
        return
    if isinstance(content, dict):
        log_builder.facts["architectures"] = content.get("architectures")
        log_builder.facts["dtype"] = content.get("dtype", content.get("torch_dtype"))
        # models that read images keep the language model's settings one level below
        text = content.get("text_config")
        size = content.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
        if isinstance(size, int):
            log_builder.facts["vocab_size"] = size


def _add_adapter_kind(config: Path, log_builder: RunLogBuilder) -> None:
    """Add the kind of adapter that was trained (`LORA`), as PEFT names it."""
    try:
        content = load_log_json(config)
    except DataError as error:
        log_builder.note_skipped(str(error))
        return
    if isinstance(content, dict):
        log_builder.facts["adapter"] = str(content.get("peft_type"))


def _matching_files(folder: Path, globs: tuple[str, ...]) -> list[Path]:
    """The files of a folder that fit one of these patterns, in the order of the patterns."""
    return [file for glob in globs for file in folder.glob(glob) if file.is_file()]
