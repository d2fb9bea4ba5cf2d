"""Checks a log, the output of nvidia-smi, and the outputs that notebooks hold."""

from __future__ import annotations

import re
from pathlib import Path

from truetune.checks.find_gpus_in_files_beside import read_nvidia_smi_file
from truetune.checks.judgement import NotJudged
from truetune.checks.log.gpus_mostly_idle import describe_gpus
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Report, Subject
from truetune.errors import DataError, TruetuneError
from truetune.logs.run_log import RunLog

HEAD_BYTES = 4_096
"""Bytes that tell the output of nvidia-smi: its table or its columns stand in the first three lines"""
LOG_NAME = re.compile(
    r"(?:^|[\W_])(?:log|std(?:out|err)|console|nohup|output|traceback|error)s?(?:$|[\W_\d])", re.I
)
"""Text files whose name says that they are printed output, and not notes or a list of packages"""
GPU_FILE_MARK = re.compile(
    r"\A(?:.{0,200}\n){0,3}.{0,20}(?:NVIDIA-SMI|.{0,300}(?:memory\.used|utilization\.gpu))"
)
"""A file of nvidia-smi alone: it begins with its table or its columns; a log may hold one as well"""
MAX_NOTEBOOKS = 20
"""Notebooks of a folder whose outputs are read: each is parsed whole"""


def check_log_file(path: str, seen: PathsCheck) -> Report:
    """Judge a log by the rules on logs. The output of nvidia-smi is named; a text file that is no
    log is not judged.
    """
    from truetune.checks.diagnose_log import diagnose

    gpus = read_nvidia_smi_file(Path(path))
    measured = [gpu for gpu in gpus if gpu.total]
    if measured and GPU_FILE_MARK.search(_read_first_characters(Path(path))):
        facts = (("GPUs", describe_gpus(measured)),)
        subject = Subject("output of nvidia-smi", path, facts)
        return Report(spec=seen.spec, subjects=(subject,), findings=(), seconds=0)
    try:
        return diagnose(path, spec=seen.spec, files_beside=seen.facts_of_files_beside_logs())
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


def _read_first_characters(path: Path) -> str:
    """The first characters of a file."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES).decode("utf-8", "replace")


def check_notebook_outputs(path: Path, seen: PathsCheck) -> None:
    """Judge the training that the outputs of a notebook show, or of the notebooks in a folder, as
    the log of a run.
    """
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
            seen.add(
                diagnose(
                    str(notebook), spec=seen.spec, files_beside=seen.facts_of_files_beside_logs()
                )
            )


def _ends_in_known_fault(log: RunLog) -> bool:
    """Does a cell end in an error that is known? A tutorial may show errors of other kinds on
    purpose.
    """
    failure = log.output.failure if log.output is not None else None
    return failure is not None and failure.message is not None
