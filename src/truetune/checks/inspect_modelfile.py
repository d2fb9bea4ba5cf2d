"""Inspects a Modelfile of Ollama: gathers its facts, and lets the rules on Modelfiles judge it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.reports import Report, Subject
from truetune.checks.rule import ModelfileRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.parsing.read_ollama_modelfile import Modelfile, read_modelfile
from truetune.settings.recognise_input_kind import title_of_kind
from truetune.settings.run_spec import RunSpec


def inspect_modelfile(path: str, spec: RunSpec) -> Report:
    """What the rules that `spec` selects say of a Modelfile. Raises UsageError where it can't be read."""
    started = time.perf_counter()
    modelfile = read_modelfile(Path(path))
    judgement = run_rules(modelfile, choose_rules(spec, ModelfileRule))
    return Report(
        spec=spec,
        subjects=(Subject(title_of_kind("modelfile"), path, tuple(_modelfile_facts(modelfile))),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
    )


def _modelfile_facts(modelfile: Modelfile) -> Iterator[tuple[str, str]]:
    """Short facts of a Modelfile: the model that it serves, its adapter and its template."""
    for word in ("from", "adapter"):
        value = modelfile.last(word)
        yield word, value.value if value is not None else "none"
    yield "template", "its own" if modelfile.last("template") is not None else "that of FROM"
