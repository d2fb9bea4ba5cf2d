"""read_run: the log of a run, whatever wrote it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from truetune.errors import DataError
from truetune.logs.builder import Builder
from truetune.logs.cells import read_notebook
from truetune.logs.console.output import ConsoleOutput
from truetune.logs.events import read_events
from truetune.logs.log import RunLog, checkpoint_step
from truetune.logs.printed import read_printed
from truetune.logs.records import load_json, read_csv, read_json, read_jsonl, read_state
from truetune.logs.several import STATE, refuse_several, runs_below, step_of
from truetune.logs.wandb_run import read_wandb
from truetune.parsing import InputLimitError
from truetune.spec.misspellings import did_you_mean_path

LOOKED_FOR = (
    f"{STATE} (also in checkpoint-N), TensorBoard event files, a W&B offline run (run-*.wandb), "
    "*.jsonl, metrics.csv, console output (*.log, *.out, *.err), all_results.json"
)
CONSOLE = ("nohup.out", "*.log", "*.out", "*.err", "log*.txt", "std*.txt", "files/output.log")
"""Console output in the folder of a run"""
OLDER_S = 60.0
"""Output that ended so long before the trainer's last state is of an earlier run"""
MAX_BYTES = 1 << 32
RATES = re.compile(r"\btok(?:en)?s?\s*(?:/|per)\s*s(?:ec(?:ond)?)?\b", re.I)
"""How scripts print the speed of a generation: `5.1 tok/s`, `tokens per second`"""
HEAD = 4_096
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
Reader = Callable[[Path, Builder], None]

KINDS: tuple[tuple[str, tuple[str, ...], Reader], ...] = (
    ("TensorBoard", ("*tfevents*",), read_events),
    ("W&B", ("*.wandb",), read_wandb),
    ("JSONL", ("*.jsonl", "*.ndjson"), read_jsonl),
    ("CSV", ("*.csv",), read_csv),
    ("notebook", ("*.ipynb",), read_notebook),
    ("JSON", ("*.json",), read_json),
    ("printed output", ("*.log", "*.txt", "*.out", "*.err"), read_printed),
    ("printed output", ("*",), read_printed),
)
"""What a file is by its name, and console output where the name says nothing (`nohup.out`, `run.log.1`, `stderr`); a
folder is looked through in the order of `IN_FOLDER`"""

IN_FOLDER: tuple[tuple[str, tuple[str, ...]], ...] = (
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
    ("printed output", CONSOLE),
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
            refuse_several(where)
            return _of_folder(where)
        if where.is_file():
            return _of_file(where)
    except OSError as error:
        raise DataError(f"{where}: it can't be read ({error.strerror or error})") from None
    raise DataError(
        f"{where}: there is no such file or folder; the folder of a run was"
        f" expected{did_you_mean_path(where)}"
    )


def is_run(path: str | PathLike[str]) -> bool:
    """Does a folder hold the log of a run, by the names of its files?"""
    where = Path(path)
    return where.is_dir() and (
        bool(_states(where)) or any(_found(where, globs) for _, globs in IN_FOLDER)
    )


def _of_folder(folder: Path) -> RunLog:
    states = _states(folder)
    if states:
        return with_output(_of_states(folder, states), folder)
    for format, globs in IN_FOLDER:
        for glob in globs:
            files = _found(folder, (glob,))
            if files:
                chosen = _one_run(files, format)
                log = _read(folder, format, chosen, len(files) - len(chosen))
                if log.curves or format == "JSON" or says_something(log.output):
                    return with_output(log, folder)
    below = next(runs_below(folder), None)
    hint = f". There is a run below it: {below.path}" if below else ""
    raise DataError(f"{folder}: there is no log of a run in it; looked for {LOOKED_FOR}{hint}")


def _of_file(path: Path) -> RunLog:
    for format, globs, _ in KINDS:
        if any(path.match(glob) for glob in globs) and (globs != ("*",) or looks_like_text(path)):
            log = _read(path, "transformers" if path.name == STATE else format, [path])
            if not log.curves and not log.facts and not says_something(log.output):
                raise DataError(
                    f"{path}: no record of a run is in it, nor a traceback or progress; one like"
                    f' {{"step": 1, "loss": 2.3}} was expected{_hint(path)}'
                )
            return log
    raise DataError(f"{path}: not known as a log; looked for {LOOKED_FOR}")


def _hint(path: Path) -> str:
    """What to do with the output of a script that generates, which has no records of a training."""
    with path.open("rb") as file:
        head = file.read(HEAD).decode("utf-8", errors="replace")
    if RATES.search(head) is None:
        return ""
    return (
        ". It prints how fast answers are generated: why that is slow, the script shows (truetune lint SCRIPT;"
        " truetune explain slow-generation)"
    )


def looks_like_text(path: Path) -> bool:
    """Does a file whose name says nothing hold text?"""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return bool(head) and (head.startswith(UTF_16) or b"\0" not in head)


def says_something(output: ConsoleOutput | None) -> bool:
    """Does console output show how a run went, even without a record of losses?"""
    if output is None:
        return False
    shown = output.failure or output.survived or output.ends or output.notices or output.total
    return bool(shown or output.settings.server or output.rank_differences)


def with_output(log: RunLog, folder: Path) -> RunLog:
    """The log with the newest console output in its folder, where that is not of an earlier run."""
    files = [file for glob in CONSOLE for file in _found(folder, (glob,))]
    if log.output is not None or not files:
        return log
    newest = max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))
    state = folder / STATE
    if state.is_file() and state.stat().st_mtime > newest.stat().st_mtime + OLDER_S:
        note = (
            f"{newest.name}: it ended before the trainer's last state was written, so it is not"
            " read"
        )
        return replace(log, notes=(*log.notes, note))
    into = Builder(str(newest), "printed output")
    read_printed(newest, into)
    return replace(log, output=into.output, files=(*log.files, str(newest)))


def _of_states(folder: Path, states: dict[float, Path]) -> RunLog:
    """The state that knows most steps; an older one where that is cut off."""
    broken: list[DataError] = []
    for step in sorted(states, reverse=True):
        into = Builder(str(folder), "transformers")
        try:
            content = load_json(states[step])
            if not isinstance(content, dict):
                raise DataError(f"{states[step]}: a trainer_state.json is an object")
            read_state(content, into)
        except DataError as error:
            broken.append(error)
            continue
        into.files.append(str(states[step]))
        for cut in broken:
            into.note(str(cut))
        _beside(folder, into)
        return into.done()
    raise broken[0]


def _states(folder: Path) -> dict[float, Path]:
    """Step -> trainer_state.json: the folder's own (half a step later) and those of its checkpoints."""
    found: dict[float, Path] = {
        step: state
        for child in folder.iterdir()
        if child.is_dir()
        and (step := checkpoint_step(child)) is not None
        and (state := child / STATE).is_file()
    }
    own = folder / STATE
    if own.is_file():
        said = step_of(own)
        found[(max(found, default=0) if said is None else said) + 0.5] = own
    return found


def _read(path: Path, format: str, files: list[Path], others: int = 0) -> RunLog:
    into = Builder(str(path), format)
    if others:
        into.note(f"{others:,} other files of logs: {files[-1].relative_to(path)} is the newest")
    reader = next(
        reader
        for name, _, reader in KINDS
        if name == ("JSON" if format == "transformers" else format)
    )
    for file in files:
        if file.stat().st_size > MAX_BYTES:
            raise DataError(
                f"{file}: {file.stat().st_size / 1e9:.1f} GB; a log of at most 4 GB was expected"
            )
        into.part()
        try:
            reader(file, into)
        except InputLimitError as error:
            raise DataError(f"{file}: {error}") from None
        into.files.append(str(file))
    _beside(path if path.is_dir() else path.parent, into)
    return into.done()


def _one_run(files: list[Path], format: str) -> list[Path]:
    """Of several files those of the newest run: event files share a folder, others stand alone."""
    newest = max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))
    if format != "TensorBoard":
        return [newest]
    return sorted(
        (file for file in files if file.parent == newest.parent), key=lambda file: file.name
    )


def _beside(folder: Path, into: Builder) -> None:
    """Facts that stand in other files of the run: its checkpoints, the class and the vocabulary of its model."""
    steps = sorted(
        step for child in folder.iterdir() if (step := checkpoint_step(child)) is not None
    )
    into.checkpoints = tuple(steps)
    # The newest checkpoint stands for the others: they are of one run.
    folders = [folder, *(folder / f"checkpoint-{step}" for step in steps[-1:])]
    for place in folders:
        config = place / "config.json"
        if config.is_file() and "vocab_size" not in into.facts:
            _of_config(config, into)
        adapter = place / "adapter_config.json"
        if adapter.is_file() and "adapter" not in into.facts:
            _of_adapter_config(adapter, into)


def _of_config(config: Path, into: Builder) -> None:
    try:
        content = load_json(config)
    except DataError as error:
        into.note(str(error))
        return
    if isinstance(content, dict):
        into.facts["architectures"] = content.get("architectures")
        into.facts["dtype"] = content.get("dtype", content.get("torch_dtype"))
        text = content.get("text_config")
        size = content.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
        if isinstance(size, int):
            into.facts["vocab_size"] = size


def _of_adapter_config(config: Path, into: Builder) -> None:
    """The kind of adapter that was trained (`LORA`), as PEFT names it."""
    try:
        content = load_json(config)
    except DataError as error:
        into.note(str(error))
        return
    if isinstance(content, dict):
        into.facts["adapter"] = str(content.get("peft_type"))


def _found(folder: Path, globs: tuple[str, ...]) -> list[Path]:
    def all_of() -> Iterator[Path]:
        for glob in globs:
            yield from (file for file in folder.glob(glob) if file.is_file())

    return list(all_of())
