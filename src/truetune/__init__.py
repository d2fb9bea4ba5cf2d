"""truetune: a linter, auditor and test harness for LLM fine-tuning.

import truetune
report = truetune.check(data="chats.jsonl", tokenizer="folder/of/the/model")
report.findings, report.ledger, report.failed()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from truetune.package import __version__ as __version__

if TYPE_CHECKING:
    from truetune.callback import AuditCallback as AuditCallback
    from truetune.checks.findings import Finding as Finding
    from truetune.checks.judge_audit import AuditReport as AuditReport
    from truetune.checks.judge_live_objects_before_training import guard as guard
    from truetune.checks.lint import LintReport as LintReport
    from truetune.checks.reports import DataReport as DataReport
    from truetune.checks.reports import Report as Report
    from truetune.checks.reports import RolloutReport as RolloutReport
    from truetune.data.read_predictions import Prediction as Prediction
    from truetune.encoding.encode_data_set import Encoded as Encoded
    from truetune.evaluation.evaluation_report import EvaluationReport as EvaluationReport
    from truetune.evaluation.generate_and_score_in_own_loop import Generator as Generator
    from truetune.evaluation.generate_and_score_in_own_loop import (
        PredictionWriter as PredictionWriter,
    )
    from truetune.evaluation.generate_and_score_in_own_loop import Scorer as Scorer
    from truetune.evaluation.sample_report import SampleReport as SampleReport
    from truetune.evaluation.score_predictions import ScoreReport as ScoreReport
    from truetune.evaluation.score_predictions import score as score
    from truetune.fixing.fix_file import Fixed as Fixed
    from truetune.generation.backends.open_backend import Options as Options
    from truetune.memory.plan_memory import Plan as Plan
    from truetune.probe.rollout_step import LossPass as LossPass
    from truetune.probe.rollout_step import RewardCall as RewardCall
    from truetune.probe.rollout_step import RolloutSettings as RolloutSettings
    from truetune.probe.rollout_step import RolloutStep as RolloutStep
    from truetune.rehearsal.rehearsal_report import RehearsalReport as RehearsalReport
    from truetune.rewards.reward_report import RewardReport as RewardReport
    from truetune.serving.compare_adapter_forms import Ladder as Ladder
    from truetune.serving.service_report import ServiceReport as ServiceReport
    from truetune.settings.run_spec import RunSpec as RunSpec
    from truetune.training.progress_listeners import Listener as Listener
    from truetune.training.run_training import Trained as Trained
    from truetune.troubleshooting.symptom_report import SymptomReport as SymptomReport
    from truetune.viewing.view import View as View

__all__ = [
    "AuditCallback",
    "AuditReport",
    "DataReport",
    "Encoded",
    "EvaluationReport",
    "Finding",
    "Fixed",
    "Generator",
    "Ladder",
    "LintReport",
    "Listener",
    "LossPass",
    "Options",
    "Plan",
    "Prediction",
    "PredictionWriter",
    "RehearsalReport",
    "Report",
    "RewardCall",
    "RewardReport",
    "RolloutReport",
    "RolloutSettings",
    "RolloutStep",
    "RunSpec",
    "SampleReport",
    "ScoreReport",
    "Scorer",
    "ServiceReport",
    "SymptomReport",
    "Trained",
    "View",
    "__version__",
    "audit",
    "audit_rollout",
    "check",
    "diagnose",
    "encode",
    "evaluate",
    "fix",
    "guard",
    "ladder",
    "lint",
    "plan",
    "rehearse",
    "reward",
    "sample",
    "score",
    "serve_check",
    "train",
    "troubleshoot",
    "view",
]

_HOMES = {
    "AuditCallback": "truetune.callback",
    "AuditReport": "truetune.checks.judge_audit",
    "DataReport": "truetune.checks.reports",
    "Encoded": "truetune.encoding.encode_data_set",
    "EvaluationReport": "truetune.evaluation.evaluation_report",
    "Finding": "truetune.checks.findings",
    "Fixed": "truetune.fixing.fix_file",
    "Generator": "truetune.evaluation.generate_and_score_in_own_loop",
    "Ladder": "truetune.serving.compare_adapter_forms",
    "LintReport": "truetune.checks.lint",
    "Listener": "truetune.training.progress_listeners",
    "LossPass": "truetune.probe.rollout_step",
    "Options": "truetune.generation.backends.open_backend",
    "Plan": "truetune.memory.plan_memory",
    "Prediction": "truetune.data.read_predictions",
    "PredictionWriter": "truetune.evaluation.generate_and_score_in_own_loop",
    "RehearsalReport": "truetune.rehearsal.rehearsal_report",
    "Report": "truetune.checks.reports",
    "RewardCall": "truetune.probe.rollout_step",
    "RolloutReport": "truetune.checks.reports",
    "RolloutSettings": "truetune.probe.rollout_step",
    "RolloutStep": "truetune.probe.rollout_step",
    "RunSpec": "truetune.settings.run_spec",
    "SampleReport": "truetune.evaluation.sample_report",
    "ScoreReport": "truetune.evaluation.score_predictions",
    "Scorer": "truetune.evaluation.generate_and_score_in_own_loop",
    "RewardReport": "truetune.rewards.reward_report",
    "ServiceReport": "truetune.serving.service_report",
    "SymptomReport": "truetune.troubleshooting.symptom_report",
    "Trained": "truetune.training.run_training",
    "View": "truetune.viewing.view",
    "guard": "truetune.checks.judge_live_objects_before_training",
    "score": "truetune.evaluation.score_predictions",
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
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.settings.read_truetune_settings import validate_settings
    from truetune.troubleshooting.check_project import check_project

    clear_one_call_caches()
    paths = [data] if isinstance(data, str | PathLike) else list(data)
    given = {"tokenizer": tokenizer, **settings}
    spec = validate_settings(
        {name: value for name, value in given.items() if value is not None}, "truetune.check"
    )
    return check_project(paths, spec, base=None if base is None else fspath(base))


def troubleshoot(
    symptom: str,
    paths: Paths,
    tokenizer: str | PathLike[str] | None = None,
    *,
    base: str | PathLike[str] | None = None,
    **settings: Any,
) -> SymptomReport:
    """Find what explains a symptom, said in your own words, in the files of a run.

    `paths` are scripts, settings, jobs, rows, logs, predictions, checkpoints, or folders of them; `tokenizer`, `base`
    and `settings` are those of `truetune.check`. In the report, findings that prove a cause of the symptom come first,
    and `causes` has all known ones: what was found, then what is left to look at, the likely ones first.

    Raises a `truetune.errors.TruetuneError` where a path can't be read.
    """
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.settings.read_truetune_settings import validate_settings
    from truetune.troubleshooting.troubleshoot import troubleshoot as run

    clear_one_call_caches()
    given = {"tokenizer": tokenizer, **settings}
    spec = validate_settings(
        {name: value for name, value in given.items() if value is not None},
        "truetune.troubleshoot",
    )
    return run(symptom, _paths_as_list(paths), spec, base=None if base is None else fspath(base))


def fix(
    data: Paths,
    tokenizer: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    *,
    unsafe: bool = False,
    diff: bool = False,
    **settings: Any,
) -> Fixed:
    """Fix the rows of a file as far as that is mechanical, into a new file; each change is proved and recorded.

    `data` is one file of rows. Without a `tokenizer` only what needs no chat template is fixed. `output` is the file
    that is written, in the format of `data`, and beside it `output`.changes.jsonl has each change; where None, nothing
    is written, and the result says what would be done. `unsafe` makes those changes too that may alter what rows mean,
    and drops rows. With `diff` nothing is written, and the result's `diff` is a unified diff. `settings` are select,
    ignore, eval_data, allow_unjudged and the other fields of `RunSpec` (format, map, template, ...). The result's
    `exit_code()` is that of `truetune fix`.

    Raises a `truetune.errors.TruetuneError` where the input can't be read, or `output` can't be written.
    """
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.fixing.fix_file import fix_data_file as run
    from truetune.settings.read_truetune_settings import validate_settings

    clear_one_call_caches()
    given = {"data": _paths_as_list(data), "tokenizer": tokenizer, **settings}
    spec = validate_settings(
        {name: value for name, value in given.items() if value is not None}, "truetune.fix"
    )
    target = None if output is None else fspath(output)
    return run(spec, target, unsafe=unsafe, diff=_ignore_hunk if diff else None)


def _ignore_hunk(text: str) -> None:
    """Do nothing with a hunk: the diff stands in the result."""


def lint(
    paths: Paths, *, fix: bool = False, unsafe: bool = False, diff: bool = False, **settings: Any
) -> LintReport:
    """Check Python files and notebooks, and with `fix` correct them; `diff` writes nothing.

    `settings` are select, ignore and fail_on. Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.checks.lint import lint as run

    clear_one_call_caches()
    named = [paths] if isinstance(paths, str | PathLike) else list(paths)
    return run(named, fix=fix, unsafe=unsafe, diff=diff, **settings)


def diagnose(run: str | PathLike[str], **settings: Any) -> Report:
    """Look at a run's log: its folder, a checkpoint, TensorBoard files, JSONL, CSV, W&B.

    `settings` are fields of `RunSpec`: with `data` and `tokenizer` the losses are compared with what the data allow.
    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.checks.diagnose_log import diagnose as check_paths

    clear_one_call_caches()
    return check_paths(run, **settings)


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
    from truetune.cached_for_one_call import clear_one_call_caches
    from truetune.checks.plan_memory import plan as run

    clear_one_call_caches()
    return run(
        path, training=training, model=model, gpu_memory=gpu_memory, gpus=gpus, length=length
    )


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
    keys: Mapping[str, str | int] | None = None,
    rollouts_follow: bool = False,
    **settings: Any,
) -> AuditReport:
    """Look at what reaches the loss in a run that is about to start: the real collator, data loader, model and loss.

    `run` is a transformers.Trainer (and so one of TRL's), or the model of a loop of your own with its `loader`,
    `tokenizer` and `loss`: (model, inputs) -> loss tensor, where it is not `model(**inputs).loss`. `given` is the data
    before any preparation, which tells which field each token is from. `batches` micro-batches are looked at; `laws`
    is quick, all, none, or names; `canary` sends a marked copy of the first row through the trainer's own preparation,
    and tells of each text whether it is learned, read or lost. `keys` maps our names of a batch's tensors (input_ids,
    labels, attention_mask, ...) to yours, or to their places in a tuple: `{"input_ids": 0, "labels": 1}`; what it does
    not name is told by its values where they leave no doubt, and else the report says what to map. Nothing of the run
    is changed, its random states neither. With `rollouts_follow` the rollouts of a trainer that samples its answers are
    judged later, as `AuditCallback` does, and are not missed here. `settings` are select, ignore and fail_on.

    Raises what the run's own data set or collator raises, or a `truetune.errors.TruetuneError`.
    """
    from truetune.auditing.record_trainer_run_in_this_process import record_run
    from truetune.checks.judge_audit import audit as judge
    from truetune.settings.read_truetune_settings import validate_settings

    record = record_run(
        run,
        loader,
        tokenizer,
        loss=loss,
        given=given,
        batches=batches,
        laws=laws,
        canary=canary,
        keys=keys,
        rollouts_follow=rollouts_follow,
    )
    return judge([record], validate_settings(settings, "truetune.audit"))


def audit_rollout(
    steps: RolloutStep | Sequence[RolloutStep],
    tokenizer: str | PathLike[str] | None = None,
    **settings: Any,
) -> RolloutReport:
    """Judge what a training by rewards sampled, and what its loss made of it.

    `steps` are one or more `RolloutStep`, the record of a generation that any program can fill: ids, masks, rewards,
    advantages, log-probabilities and the settings. What it leaves out is not judged. `tokenizer` is the folder of the
    run's tokenizer, by which tokens are shown and the template's stop token is known. `settings` are select, ignore and
    fail_on. `truetune run` and `AuditCallback` fill the record from TRL's GRPOTrainer and RLOOTrainer.

    Raises a `truetune.errors.TruetuneError` where the tokenizer can't be read.
    """
    from truetune.checks.judge_rollouts import judge_rollouts
    from truetune.probe.rollout_step import RolloutStep
    from truetune.render.template_probes import make_probes
    from truetune.render.tokenizer import load_tokenizer
    from truetune.settings.read_truetune_settings import validate_settings

    spec = validate_settings(settings, "truetune.audit_rollout")
    probes = None if tokenizer is None else make_probes(load_tokenizer(fspath(tokenizer)), spec)
    return judge_rollouts([steps] if isinstance(steps, RolloutStep) else steps, spec, probes=probes)


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
    from truetune.rehearsal.rehearsal_report import judge_rehearsal
    from truetune.rehearsal.rehearse_in_process import record_rehearsal
    from truetune.settings.read_truetune_settings import validate_settings

    spec = validate_settings(settings, "truetune.rehearse")
    return judge_rehearsal(
        [
            record_rehearsal(
                trainer, source_data=given, batches=batches, laws=laws, rows=rows, mutate=mutate
            )
        ],
        spec,
    )


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

    Written into the folder `out`, else into a folder of `cache`; where the same exists already, it is proved and
    kept. `settings` are the fields of `Encoding` (overflow, packing, content_specials, on_error, file_format,
    loss_weights) and of `RunSpec` (learn, history, max_length, ...).

    Raises a `truetune.errors.TruetuneError` where the input can't be read, rendered or encoded.
    """
    from truetune.encoding.encode_data_set import encode as run
    from truetune.settings.read_truetune_settings import validate_settings
    from truetune.settings.run_spec import Encoding

    own = {name: settings.pop(name) for name in Encoding.model_fields if name in settings}
    settings["encode"] = {**settings.get("encode", {}), **own}
    spec = validate_settings({"data": data, "tokenizer": tokenizer, **settings}, "truetune.encode")
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
    folder of the run: the same call on the folder of an interrupted run continues where that stopped. `listener` is
    told how it goes (default: lines are printed); `callbacks` are transformers.TrainerCallback. With `force` findings
    stop nothing, and are recorded. With `fit` settings are changed, and that is said, until the run goes into the
    memory of the GPU (or into `gpu_memory`, as `24GB`), and again where memory runs out all the same.

    Raises `truetune.errors.FindingsError` where an error is found before the first step, else a `TruetuneError`.
    """
    from pathlib import Path

    from truetune.render.find_tokenizer_folder import find_tokenizer_folder
    from truetune.render.template_probes import tokenizer_name_of_run
    from truetune.settings.read_truetune_settings import (
        find_own_settings_and_file,
        merge_settings,
        validate_settings,
    )

    given = find_own_settings_and_file(fspath(config), Path())[0] if config is not None else {}
    if out is not None:
        settings = merge_settings(settings, {"training": {"output_dir": fspath(out)}})
    spec = validate_settings(
        merge_settings(given, settings), fspath(config) if config is not None else "truetune.train"
    )
    find_tokenizer_folder(tokenizer_name_of_run(spec))
    from truetune.training.run_training import train_run as run

    return run(
        spec, force=force, fit=fit, gpu_memory=gpu_memory, listener=listener, callbacks=callbacks
    )


def sample(
    model: str | PathLike[str],
    data: Paths = (),
    *,
    count: int = 20,
    compare: str | PathLike[str] | None = None,
    parser: str | None = None,
    max_new_tokens: int = 256,
    options: Options | None = None,
    **settings: Any,
) -> SampleReport:
    """Ask a finished model some held-out rows, judge each answer, and say why answers fail.

    `model`, and another one to `compare` it with, is the folder of a model or an adapter, a GGUF file, or the URL of a
    server; `options` say how it is opened (backend, device, dtype, ...). Without `data` the rows that its run held out
    are asked. `parser` is json, json-schema:FILE, number, choice, regex:PATTERN or python:module.function. `settings`
    are seed, temperature, top_p, min_p, base, tokenizer, min_success, all_rows, and fields of `RunSpec`.

    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.evaluation.sample_model import sample_model as run
    from truetune.generation.backends.open_backend import Options

    other = None if compare is None else fspath(compare)
    return run(
        fspath(model),
        _paths_as_list(data),
        count=count,
        compare=other,
        parser=parser,
        max_new_tokens=max_new_tokens,
        options=options or Options(),
        **settings,
    )


def evaluate(
    model: str | PathLike[str],
    data: Paths = (),
    *,
    against: str | PathLike[str] | None = None,
    parser: str | None = None,
    answers: int = 0,
    options: Options | None = None,
    **settings: Any,
) -> EvaluationReport:
    """Measure a finished model on held-out rows: loss in nats/token by source, stopping, and `answers` that are read
    by `parser`, which is tested first; compared row by row with the model `against`.

    `model`, `data` and `options` are those of `sample`; `settings` are limit, seed, confidence, max_new_tokens,
    trained_on, tasks (of lm-eval), base, tokenizer, and fields of `RunSpec`.

    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.evaluation.evaluate_losses_and_answers import evaluate_model as run

    other = None if against is None else fspath(against)
    return run(
        fspath(model),
        _paths_as_list(data),
        against=other,
        parser=parser,
        answers=answers,
        options=options,
        **settings,
    )


def reward(
    function: str | PathLike[str],
    data: Paths,
    *,
    reference: str | None = None,
    golden: str | None = None,
    answer_forms: Sequence[str] = (),
    completions: Literal["auto", "text", "messages"] = "auto",
    rows: int = 20,
    call_seconds: float = 3.0,
    max_seconds: float = 120.0,
    guard: Literal["system", "python"] = "system",
    **settings: Any,
) -> RewardReport:
    """Call a reward function of GRPO or RLOO as TRL does, and see what it pays for: forms of the right answer, wrong,
    empty and repeated ones, lists of all answers; whether scores stay the same, and what makes it raise or hang. Where
    math-verify is installed, its verdicts on the same completions are compared (`trial.comparisons`).

    Args:
        function: `FILE.py:NAME` or `MODULE:NAME`. It runs in a confined process, and is never imported here.
        data: rows with the prompts and right answers.
        reference: the column with the right answers; None: what the function takes tells it.
        golden: a column of whole completions that it should pay, for code and the like.
        answer_forms: further forms of an answer, each with one {} in its place.
        completions: what the function gets; auto: as the prompts are.
        rows: so many of the rows are tried.
        call_seconds: that one completion may take; more in one call get more.
        max_seconds: after which nothing more is tried.
        guard: python: run it although the system can't confine it.
        settings: select, ignore, fail_on and allow_unjudged.

    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.rewards.check_reward import check_reward
    from truetune.rewards.trial_in_progress import TrialOptions
    from truetune.rewards.verifiers import VERIFIERS
    from truetune.settings.read_truetune_settings import validate_settings

    options = TrialOptions(
        seconds=call_seconds,
        max_seconds=max_seconds,
        reference=reference,
        golden=golden,
        own_forms=tuple(answer_forms),
        completions_as=completions,
        python_only=guard == "python",
        verifiers=VERIFIERS,
    )
    spec = validate_settings(settings, "truetune.reward")
    return check_reward(
        fspath(function), _paths_as_list(data), rows=rows, options=options, spec=spec
    )


def serve_check(
    model: str | PathLike[str],
    endpoint: str,
    *,
    data: Paths = (),
    count: int = 4,
    strength: bool = True,
    options: Options | None = None,
    **settings: Any,
) -> ServiceReport:
    """Compare what the server at `endpoint` builds and does with what `model` was trained for: prompt ids, stops,
    sampling defaults, context, repeatability, and with `strength` how much of the training is served.

    `count` rows of `data` are asked besides fixed conversations; `options` are those of `sample`; `settings` are base,
    tokenizer, longest, and fields of `RunSpec`. Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.generation.backends.open_backend import Options
    from truetune.serving.check_server import serve_check as run

    return run(
        fspath(model),
        endpoint,
        data=_paths_as_list(data),
        count=count,
        strength=strength,
        options=options or Options(),
        **settings,
    )


def ladder(
    adapter: str | PathLike[str],
    *,
    base: str | PathLike[str] | None = None,
    merged: str | PathLike[str] | None = None,
    exported: Paths = (),
    endpoint: str | None = None,
    data: Paths = (),
    prompts: int = 4,
    options: Options | None = None,
) -> Ladder:
    """Score the same answers with an adapter on its base, saved and reloaded, merged, exported and served: the first
    stage on which its effect is not there names what lost it.

    Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.serving.compare_adapter_forms import compare_adapter_forms as run

    under, whole = (None if path is None else fspath(path) for path in (base, merged))
    return run(
        fspath(adapter),
        base=under,
        merged=whole,
        exported=_paths_as_list(exported),
        endpoint=endpoint,
        data=_paths_as_list(data),
        prompts=prompts,
        options=options,
    )


def view(
    data: Paths,
    tokenizer: str | PathLike[str] | None = None,
    *,
    rows: int | Sequence[int] = 20,
    report: Report | None = None,
    **settings: Any,
) -> View:
    """The token view of some rows for a notebook: the first `rows`, or those numbers (from 0, over all files).

    `data` may be a folder of `truetune encode`. The rows that findings of `report`, what `check` gave of the same data,
    cite are marked. `settings` are fields of `RunSpec`. Raises a `truetune.errors.TruetuneError`.
    """
    from truetune.viewing.view import view as run

    return run(
        _paths_as_list(data),
        None if tokenizer is None else fspath(tokenizer),
        rows=rows,
        report=report,
        **settings,
    )


def _paths_as_list(paths: Paths) -> list[str]:
    """The paths as a list of names."""
    return [fspath(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]


def __getattr__(name: str) -> Any:
    """Import a public name of the package when it is first asked for. Raises AttributeError for others."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'truetune' has no attribute {name!r}")
