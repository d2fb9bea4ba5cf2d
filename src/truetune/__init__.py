"""truetune shows, proves and guarantees what an LLM fine-tune really learns.

import truetune
report = truetune.check(data="chats.jsonl", tokenizer="folder/of/the/model")
report.findings, report.ledger, report.failed()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truetune.callback import AuditCallback as AuditCallback
    from truetune.checks.audit import AuditReport as AuditReport
    from truetune.checks.findings import Finding as Finding
    from truetune.checks.lint import LintReport as LintReport
    from truetune.checks.report import DataReport as DataReport
    from truetune.checks.report import Report as Report
    from truetune.encoding.run import Encoded as Encoded
    from truetune.memory.plan import Plan as Plan
    from truetune.rehearsal.report import RehearsalReport as RehearsalReport
    from truetune.spec.run import RunSpec as RunSpec
    from truetune.training.listen import Listener as Listener
    from truetune.training.run import Trained as Trained

__version__ = "0.1.0.dev0"
__all__ = [
    *("AuditCallback", "AuditReport", "DataReport", "Encoded", "Finding", "LintReport", "Listener", "Plan"),
    *("RehearsalReport", "Report", "RunSpec", "Trained"),
    *("__version__", "audit", "check", "diagnose", "encode", "lint", "plan", "rehearse", "train"),
]

_HOMES = {
    "AuditCallback": "truetune.callback",
    "AuditReport": "truetune.checks.audit",
    "DataReport": "truetune.checks.report",
    "Encoded": "truetune.encoding.run",
    "Finding": "truetune.checks.findings",
    "LintReport": "truetune.checks.lint",
    "Listener": "truetune.training.listen",
    "Plan": "truetune.memory.plan",
    "RehearsalReport": "truetune.rehearsal.report",
    "Report": "truetune.checks.report",
    "RunSpec": "truetune.spec.run",
    "Trained": "truetune.training.run",
}
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def check(
    data: Paths = (),
    tokenizer: str | PathLike[str] | None = None,
    *,
    base: str | PathLike[str] | None = None,
    **settings: Any,
) -> Report:
    """Check data and a tokenizer before a fine-tune, or whatever else a path is.

    `data` is a file, folder or glob, or several: rows, a model or tokenizer folder, settings of truetune, Axolotl,
    LLaMA-Factory or TRL, Python sources, a run's folder or log, an adapter or saved model (compared with `base`).
    `tokenizer` is a folder, or a model of the local hub cache; `settings` are the other fields of `RunSpec` (learn,
    history, max_length, eval_data, select, ...). Where there were rows, the result is a `DataReport`.

    Raises a `truetune.errors.TruetuneError` where the input itself can't be read.
    """
    from truetune.checks.look import look
    from truetune.spec.files import spec_of

    paths = [data] if isinstance(data, str | PathLike) else list(data)
    given = {"tokenizer": tokenizer, **settings}
    spec = spec_of({name: value for name, value in given.items() if value is not None}, "truetune.check")
    return look(paths, spec, base=None if base is None else fspath(base))


def lint(paths: Paths, *, fix: bool = False, unsafe: bool = False, diff: bool = False, **settings: Any) -> LintReport:
    """Check Python files and notebooks, and with `fix` mend them; `diff` writes nothing.

    `settings` are select, ignore and fail_on. Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.checks.lint import lint as run

    named = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return run(named, fix=fix, unsafe=unsafe, diff=diff, **settings)


def diagnose(run: str | PathLike[str], **settings: Any) -> Report:
    """Look at a run's log: its folder, a checkpoint, TensorBoard files, JSONL, CSV, W&B.

    `settings` are fields of `RunSpec`: with `data` and `tokenizer` the losses are compared with what the data allow.
    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.checks.diagnose import diagnose as look

    return look(run, **settings)


def plan(
    path: str | PathLike[str],
    *,
    training: Mapping[str, Any] | None = None,
    model: str | PathLike[str] | None = None,
    gpu_memory: str | float | None = None,
    gpus: int | None = None,
    length: int | None = None,
) -> Plan:
    """Estimate the GPU memory of the run that a path describes: settings, a script, or a model folder.

    `training` holds settings over those of the path; `gpu_memory` is `24GB`, or a number of GiB; `length` in tokens.
    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.checks.planning import plan as run

    return run(path, training=training, model=model, gpu_memory=gpu_memory, gpus=gpus, length=length)


def audit(
    run: Any,
    loader: Any = None,
    tokenizer: Any = None,
    *,
    loss: Any = None,
    given: Any = None,
    batches: int = 8,
    laws: str | Sequence[str] = "quick",
    canary: bool = False,
    **settings: Any,
) -> AuditReport:
    """Look at what reaches the loss in a run that is about to start: the real collator, data loader, model and loss.

    `run` is a transformers.Trainer (and so one of TRL's), or the model of a loop of your own with its `loader`,
    `tokenizer` and `loss`: (model, inputs) -> loss tensor, where it is not `model(**inputs).loss`. `given` is the data
    before any preparation, which tells which field each token is from. `batches` micro-batches are looked at; `laws`
    is quick, all, none, or names; `canary` sends a marked copy of the first row through the trainer's own preparation,
    and tells of each text whether it is learned, read or lost. Nothing of the run is changed, its random states
    neither. `settings` are select, ignore and fail_on.

    Raises what the run's own data set or collator raises, or a `truetune.errors.TruetuneError`.
    """
    from truetune.auditing.here import record_of
    from truetune.checks.audit import audit as judge
    from truetune.spec.files import spec_of

    record = record_of(run, loader, tokenizer, loss=loss, given=given, batches=batches, laws=laws, canary=canary)
    return judge([record], spec_of(settings, "truetune.audit"))


def rehearse(
    trainer: Any,
    *,
    given: Any = None,
    batches: int = 8,
    laws: str | Sequence[str] = "quick",
    rows: int = 6,
    mutate: bool | Sequence[str] = False,
    **settings: Any,
) -> RehearsalReport:
    """Memorise a few rows with a miniature of the trainer's model on a CPU, and recite them as they will be served.

    `trainer` is a transformers.Trainer (and so one of TRL's) that is about to train; it is as before afterwards.
    `given`, `batches`, `laws` and `settings` are those of `audit`, which is part of it. `rows` are memorised.
    `mutate` puts known faults (all, or those of these names) into their batch, one by one, and tells which of them the
    logs of the run would show.

    Raises what the run's own data set or collator raises, or a `truetune.errors.TruetuneError`.
    """
    from truetune.rehearsal.here import record_of
    from truetune.rehearsal.report import report
    from truetune.spec.files import spec_of

    spec = spec_of(settings, "truetune.rehearse")
    return report([record_of(trainer, given=given, batches=batches, laws=laws, rows=rows, mutate=mutate)], spec)


def encode(
    data: Paths = (),
    tokenizer: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    jobs: int | None = None,
    engine: str = "local",
    **settings: Any,
) -> Encoded:
    """Encode data once, for any trainer: input_ids and labels, with a manifest that says what shaped them.

    Written into the folder `out`, else into a folder of `cache`; where the same is there already, it is proved and
    kept. `settings` are the fields of `Encoding` (overflow, packing, content_specials, on_error, file_format,
    loss_weights) and of `RunSpec` (learn, history, max_length, ...).

    Raises a `truetune.errors.TruetuneError` where the input can't be read, rendered or encoded.
    """
    from truetune.encoding.run import encode as run
    from truetune.spec.files import spec_of
    from truetune.spec.run import Encoding

    own = {name: settings.pop(name) for name in Encoding.model_fields if name in settings}
    settings["encode"] = {**settings.get("encode", {}), **own}
    spec = spec_of({"data": data, "tokenizer": tokenizer, **settings}, "truetune.encode")
    return run(spec, out, cache=cache, jobs=jobs, engine=engine)


def train(
    config: str | PathLike[str] | None = None,
    *,
    out: str | PathLike[str] | None = None,
    force: bool = False,
    fit: bool = False,
    gpu_memory: str | float | None = None,
    listener: Listener | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Trained:
    """Train a model: SFT, LoRA, QLoRA, DPO, ORPO, KTO; checked, audited and rehearsed before, watched meanwhile.

    `config` is a truetune.yaml; `settings` are fields of `RunSpec` over it (model, data, training, ...). `out` is the
    folder of the run: the same call on the folder of an interrupted run goes on where that stopped. `listener` is
    told how it goes (default: lines are printed); `callbacks` are transformers.TrainerCallback. With `force` findings
    stop nothing, and are recorded. With `fit` settings are changed, and that is said, until the run goes into the
    memory of the GPU (or into `gpu_memory`, as `24GB`), and again where memory runs out all the same.

    Raises `truetune.errors.FindingsError` where an error is found before the first step, else a `TruetuneError`.
    """
    from pathlib import Path

    from truetune.spec.files import find_settings, merged, spec_of
    from truetune.training.run import train as run

    given = find_settings(fspath(config), Path())[0] if config is not None else {}
    if out is not None:
        settings = merged(settings, {"training": {"output_dir": fspath(out)}})
    spec = spec_of(merged(given, settings), fspath(config) if config is not None else "truetune.train")
    return run(spec, force=force, fit=fit, gpu_memory=gpu_memory, listener=listener, callbacks=callbacks)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'truetune' has no attribute {name!r}")
