"""Guards a training script: judges its live objects (tokenizer, template, collator, model, rows)
before it trains.

Each part is judged by itself. What fails in a part of ours is not judged, and told as a warning; nothing but the
findings' own exception reaches the user's program, and nothing of the user's is changed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truetune.auditing.audit import Audit
from truetune.auditing.build_audit import build_audit
from truetune.auditing.collect_live_objects_of_script import (
    CollatedRows,
    LiveObjects,
    collate_rows,
    make_small_sample_chats,
    parse_conversations,
    preserve_objects,
    read_live_rows,
    read_live_template,
    read_live_tokenizer,
    record_model_without_batches,
)
from truetune.auditing.temporary_folder_removed_with_process import open_workspace
from truetune.checks.batch.stop_token_never_supervised import StopTokenNeverSupervised
from truetune.checks.detect_trainer_and_apply_facts import (
    trainer_facts_of_run,
    with_trainer_defaults,
)
from truetune.checks.findings import SHOWN_CASES, Case, Finding
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import BatchRule, DataRule, Setup
from truetune.checks.rule_catalogue import select_rules, station_of_rule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.checks.run_data_rules import DataRules
from truetune.checks.write_fixes_as_script_lines import add_fix_as_code_line
from truetune.data.conversation import Conversation
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.errors import FindingsError
from truetune.probe.contain_own_failures_in_user_program import describe_error, run_contained
from truetune.probe.run_record import Record
from truetune.render.read_embedding_from_safetensors import EmbeddingRows
from truetune.render.template_probes import Probes, make_probes
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

# Chosen: thirty times what a guard takes. A script that waits longer would be blamed on the guard.
TIMEOUT_S = 60.0
"""By then a guard gives up; it takes one or two"""
OF_TEMPLATE = ("tokenizer", "template", "tokens")
"""Stations that small chats of ours tell something about; the others are about the user's own rows"""


@dataclass
class _Guard:
    """One call, and what it has judged so far."""

    live: LiveObjects
    spec: RunSpec
    folder: Path
    judged: list[Judgement] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)

    def add_judgement(self, judgement: Judgement, probes: Probes | None) -> None:
        """Add what was judged, with fixes that fit a script."""
        if probes is not None:
            judgement = replace(
                judgement,
                findings=tuple(add_fix_as_code_line(one, probes) for one in judgement.findings),
            )
        self.judged.append(judgement)

    def run_part(self, what: str, work: Callable[[], Any]) -> Any:
        """Run one part of the check and return its result; None if it fails, which is noted as not
        judged.
        """
        try:
            return work()
        # Exception and not TruetuneError: the guard runs in a user's script, and a fault of ours must not end it.
        except Exception as error:
            self.judged.append(Judgement(not_judged=(NotJudged(what, describe_error(error)),)))
            return None


def guard(
    tokenizer: Any,
    collator: Any = None,
    template: str | None = None,
    model: Any = None,
    *,
    rows: Any = None,
    **settings: Any,
) -> Report:
    """Judge the objects of a script before it trains, and raise where they would spoil the run.

    `tokenizer` is one of transformers' as it is in memory, or a processor; `collator` the function or object that makes
    batches; `template` a chat template as text, where it is not the tokenizer's; `model` the model that will be
    trained. `rows` (a list or data set) are what the collator is given, or chats before any preparation; without them
    small chats of truetune's are put into the form that the collator takes, and what depends on the rows is not judged.
    The objects, the random states and the disk are as before afterwards. `settings` are select, ignore, fail_on,
    trained_by and the other fields of `RunSpec`.

    Returns a report with figures of what was examined and what was not judged. What fails in truetune itself is a
    Python warning, and not judged.

    Raises `truetune.errors.FindingsError` where there is a finding at or above `fail_on` (error): its `findings` hold
    fact, evidence and fix, and its text shows them. `SpecError` or `UsageError` for a setting or rule that there is
    not.
    """
    spec = validate_settings(settings, "truetune.guard")
    # A misspelt rule is told before any work, as an error: it is the user's, and not a fault of the guard.
    select_rules(spec.select, spec.ignore)
    return _judge_or_raise(LiveObjects(tokenizer, collator, template, model, rows), spec)


def _judge_or_raise(live: LiveObjects, spec: RunSpec) -> Report:
    """Judge the objects. Raises FindingsError where there is a finding at or above `spec.fail_on`."""
    started, lost = time.perf_counter(), list[str]()
    report: Report | None = run_contained(
        _judge_objects_in_temporary_folder, live, spec, on_failure=lost.append, seconds=TIMEOUT_S
    )
    if report is None:
        judgement = (NotJudged("the objects", lost[0] if lost else "the guard failed"),)
        report = Report(spec=spec, findings=(), not_judged=judgement, seconds=0.0)
    report = replace(report, seconds=time.perf_counter() - started)
    if report.failed():
        raise FindingsError(_exception_text(report.findings), report.findings)
    for part in report.requested_not_judged():
        warnings.warn(f"truetune.guard: not judged: {part}", stacklevel=3)
    return report


def _judge_objects_in_temporary_folder(live: LiveObjects, spec: RunSpec) -> Report:
    """Judge in a folder of its own; the objects are as before afterwards."""
    # guard=False: nothing is run that could write; the objects are put back as they were instead.
    with open_workspace(guard=False) as folder, preserve_objects(live):
        work = _Guard(live, spec, folder)
        _judge_all_parts(work)
    judgement = Judgement.of(work.judged)
    return Report(
        spec=work.spec,
        subjects=tuple(work.subjects),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=0.0,
    )


def _judge_all_parts(work: _Guard) -> None:
    """Judge the rows, tokenizer, batches, template and model of a script in turn; what the collator
    does with pads decides how grave a pad token is.
    """
    live, folder = work.live, work.folder
    rows = work.run_part("the rows", lambda: read_live_rows(live)) or []
    probes = work.run_part("the tokenizer", lambda: _probes_of_tokenizer_in_memory(work))
    record: CollatedRows | None = None
    # Without a collator rows of ids are collated by padding them, which shows what they hold.
    if probes is not None and (
        live.collator is not None or any("input_ids" in row for row in rows)
    ):
        record = work.run_part("the collator", lambda: collate_rows(live, folder, probes, rows))
    if record is not None or live.model is not None:
        work.run_part("the batches", lambda: _judge_batches(work, record, probes))
    if probes is not None:
        work.run_part("the tokenizer and template", lambda: _judge_data(work, probes, rows))


def _probes_of_tokenizer_in_memory(work: _Guard) -> Probes:
    """The tokenizer as it is in memory, with what its template renders."""
    template = read_live_template(work.live, work.folder)
    variables = {} if template is None else {"template": template}
    work.spec = work.spec.model_copy(
        update=variables | _trainer_settings_of_collator(work.live.collator, work.spec)
    )
    return make_probes(read_live_tokenizer(work.live, work.folder), work.spec)


def _trainer_settings_of_collator(collator: Any, spec: RunSpec) -> dict[str, Any]:
    """The trainer that a collator shows, as settings: a collator of TRL is used with TRL's
    trainers, that of transformers by loops of all kinds.
    """
    home = type(collator).__module__.partition(".")[0]
    return {"trained_by": "trl"} if home == "trl" and spec.trained_by is None else {}


def _judge_batches(work: _Guard, rows: CollatedRows | None, known: Probes | None) -> None:
    """The rules on batches, of the collator's output, the model, or both."""
    record = record_model_without_batches(work.live, work.folder) if rows is None else rows.record
    subject = _audit_recorded_batches(record, work.spec, known)
    kinds = choose_rules(work.spec, BatchRule)
    kinds = [kind for kind in kinds if _is_judgeable(kind, rows, work.live)]
    judgement = run_rules(subject, kinds)
    work.add_judgement(judgement, subject.probes)
    if rows is not None:
        lines = f"{len(subject.samples)} lines of " + (
            f"{rows.made_of}, made by truetune" if rows.made_of else "your rows"
        )
        work.subjects.append(
            Subject("collator", record.facts["trainer"]["collator"], (("batches", lines),))
        )
        work.spec = _with_pad_masking_of_batches(work.spec, judgement)
    if work.live.model is not None:
        facts = record.facts["model"]
        trained = f"{facts['trainable']:,} of {facts['parameters']:,} parameters"
        work.subjects.append(
            Subject("model", facts["class"], (("trained", trained), ("dtype", facts["dtype"])))
        )


def _is_judgeable(kind: type[BatchRule], rows: CollatedRows | None, live: LiveObjects) -> bool:
    """Can a rule on batches say something about what the script has: a collator with its rows, a model, or both?"""
    if not kind.needs_batches:
        return live.model is not None
    if rows is None:
        return False
    # Rows that truetune made have no prompts that anybody masked: only what holds whatever the rows are is judged.
    return kind.judges_collator or not rows.made_of


def _audit_recorded_batches(record: Record, spec: RunSpec, known: Probes | None) -> Audit:
    """The batches with each token placed.

    Stop ids of a model that do not know how turns end are left out: trainers replace them, and a turn's first token
    among them (a new model's eos_token_id is 2) would be taken for a second end. stop-ids-incomplete tells of them.
    """
    if known is None:
        return build_audit([record], spec)
    end = known.terminator.token if known.terminator is not None else None
    stop = next((stop for stop in known.stops if end is not None and stop.id == end.id), None)
    if stop is not None and not {"generation_config", "config"} & set(stop.origins):
        config = {
            name: value
            for name, value in known.tokenizer.model_config.items()
            if name != "eos_token_id"
        }
        # Both sources are taken away: either would bring the wrong stop ids back.
        known = make_probes(
            replace(known.tokenizer, model_config=config, generation_config=None), spec
        )
        record.facts["model"] = {**record.facts["model"], "generation_config": None}
    return build_audit([record], spec, known)


def _with_pad_masking_of_batches(spec: RunSpec, judgement: Judgement) -> RunSpec:
    """The settings with how pads are masked, as the batches show it."""
    rule = StopTokenNeverSupervised.name()
    if any(finding.rule == rule for finding in judgement.findings):
        how = "id"
    elif any(examined.rule == rule for examined in judgement.examined):
        how = "position"
    else:
        return spec
    return spec.model_copy(
        update={"training": spec.training.model_copy(update={"pads_masked_by": how})}
    )


def _judge_data(work: _Guard, probes: Probes, rows: Sequence[Any]) -> None:
    """The rules on tokenizer, template and rows, with chats of ours where there are none."""
    talks = parse_conversations(rows)
    own = bool(talks)
    if not own:
        talks = parse_conversations(make_small_sample_chats(probes))
    spec = with_trainer_defaults(work.spec)
    probes = replace(probes, spec=spec)
    kinds = _data_rules(spec, OF_TEMPLATE if not own else ())
    setup = Setup(
        spec,
        probes.tokenizer,
        probes,
        trainer_facts_of_run(spec),
        embedding=_embedding_in_memory(work.live.model),
    )
    work.add_judgement(_judge_chats(kinds, setup, talks), probes)
    facts = (
        ("rows", f"{len(talks)} of yours" if own else f"{len(talks)} small chats of truetune's"),
    )
    work.subjects.insert(0, Subject("tokenizer", type(work.live.tokenizer).__name__, facts))


def _data_rules(spec: RunSpec, stations: Collection[str]) -> list[type[DataRule]]:
    """The rules on data of these stations (of all where none is named) that a tokenizer in memory can be judged by."""
    kinds = choose_rules(spec, DataRule)
    if stations:
        kinds = [kind for kind in kinds if station_of_rule(kind) in stations]
    return [kind for kind in kinds if not kind.judges_saved_file]


def _judge_chats(kinds: list[type[DataRule]], setup: Setup, talks: list[Conversation]) -> Judgement:
    """What these rules say of the setup and of these chats."""
    rules = DataRules(kinds, setup)
    if talks:
        encoder = Encoder(setup.tokenizer.backend, only_reference=True)
        rules.judge_batch(make_batch(talks, setup.probes.renderer(), encoder, exact=True))
    return rules.judgement()


def _embedding_in_memory(model: Any) -> EmbeddingRows | None:
    """The input embedding in memory; None where it is sharded, quantized, or there is none."""
    if model is None:
        return None
    from truetune.probe.live_embedding import live_embedding

    return live_embedding(model)


def _exception_text(findings: Sequence[Finding]) -> str:
    """What the exception says: each finding with its evidence and its fix, the worst first."""
    lines = ["truetune.guard found what spoils this run:"]
    for finding in findings:
        lines.append(f"{finding.severity} {finding.code} {finding.rule}: {finding.message}")
        lines += [f"    {fact}" for fact in finding.evidence]
        lines += [f"    {_row_prefix(case)}{case.text}" for case in finding.cases[:SHOWN_CASES]]
        lines.append(f"    fix: {finding.remedy}")
    return "\n".join(lines)


def _row_prefix(case: Case) -> str:
    """The row of a case as the beginning of a line, if it is one of the user's rows; else empty."""
    return "" if case.origin is None else f"row {case.origin.row}: "
