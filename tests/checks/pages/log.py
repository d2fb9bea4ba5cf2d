"""Blocks that are the log of a run.

The blocks are YAML: `log` is a list of records; or `curve` makes one from `{name: {from, to, steps, noise, every}}`
(`from` and `to` may be a list `values`, between which lines are drawn), `eval_...` curves as records of their own;
`state` holds facts of a trainer_state.json, `config` those of config.json, `data` fields of DataFacts, `beside` those
of RunSize for other runs, `runs` those of RunBeside; or `output` is what the run printed, beside `rows` (RowsBeside)
and `gpus` that nvidia-smi measured.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.logs.facts_in_files_beside_log import FilesBeside, RowsBeside, RunBeside
from truetune.logs.read_run_log import read_run
from truetune.logs.rows_and_steps_of_sibling_runs import RunSize
from truetune.logs.run_log import DataFacts
from truetune.parsing.read_nvidia_smi_output import MIB, GpuReading
from truetune.report.rule_pages.examples_of_training_results import records_of_curves

FACTS = {
    "rows": 100,
    "examples": 100,
    "supervised": 10_000,
    "unigram": 5.0,
    "answer": 3.0,
    "commonest": 0.01,
}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What this rule finds in the log that a block describes."""
    example = yaml.safe_load(text)
    if "output" in example:
        (folder / "run.log").write_text(example["output"], encoding="utf-8")
        log = read_run(folder / "run.log")
        rows = tuple(
            RowsBeside(**{**one, "files": tuple(one["files"])}) for one in example.get("rows", ())
        )
        gpus = tuple(_gpu(**gpu) for gpu in example.get("gpus", ()))
        beside = FilesBeside(rows=rows, gpus=gpus)
        return tuple(rule(dataclasses.replace(log, files_beside=beside)).findings())
    records = example.get("log") or records_of_curves(example["curve"])
    state = {"log_history": records, **(example.get("state") or {})}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    if "config" in example:
        (folder / "config.json").write_text(json.dumps(example["config"]), encoding="utf-8")
    log = read_run(folder)
    if "data" in example:
        log = dataclasses.replace(log, data=DataFacts(**{**FACTS, **example["data"]}))
    if "runs" in example:
        runs = tuple(RunBeside(**run) for run in example["runs"])
        log = dataclasses.replace(log, files_beside=FilesBeside(runs=runs))
    if "beside" in example:
        log = dataclasses.replace(log, beside=tuple(RunSize(**size) for size in example["beside"]))
    return tuple(rule(log).findings())


def _gpu(index: int, name: str, total: int, used: int, busy: float) -> GpuReading:
    """A reading of nvidia-smi, with its memory in MiB."""
    return GpuReading(index, name, 1, total * MIB, used * MIB, busy)
