"""Reconciles the findings of several files: what one file proves corrects the findings and the
advice on another.

Each rule sees one file. A client that asks row by row is advised to ask for 32 answers at once, which is of no use
where the server's own log or command says that it works on one; a cap of requests is none where the server's cache was
full; and one job that was ended writes so into two logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from truetune.checks.commands.nccl_transport_switched_off import NcclTransportSwitchedOff
from truetune.checks.commands.server_generates_slowly import ServerGeneratesSlowly
from truetune.checks.commands.sharding_file_not_read import (
    UNLESS_BY_DEFAULT,
    ShardingFileNotRead,
)
from truetune.checks.config.pure_bf16_updates_rounded_away import PureBf16UpdatesRoundedAway
from truetune.checks.demote_findings_on_exchanged_pairs import demote_findings_of_exchanged_sides
from truetune.checks.describe_cost_of_nccl_variables import BETWEEN_NODES
from truetune.checks.does_log_show_weights_moved import have_weights_moved
from truetune.checks.fewer_steps_in_same_epochs import name_log_with_more_steps
from truetune.checks.findings import Case, Finding
from truetune.checks.log.dpo_stuck_at_ln2 import DpoStuckAtLn2
from truetune.checks.log.fault_named_in_the_output import FaultNamedInTheOutput
from truetune.checks.log.gradients_cross_a_slow_network import GradientsCrossASlowNetwork
from truetune.checks.log.learning_rate_ended_early import LearningRateEndedEarly
from truetune.checks.log.loss_is_a_sum import LossIsASum
from truetune.checks.log.loss_not_finite import LossNotFinite
from truetune.checks.log.rewards_not_zero_at_first import RewardsNotZeroAtFirst
from truetune.checks.log.run_ended_in_an_exception import RunEndedInAnException
from truetune.checks.log.run_was_killed import RunWasKilled
from truetune.checks.log.server_asked_one_by_one import ServerAskedOneByOne
from truetune.checks.log.server_cap_makes_requests_wait import ServerCapMakesRequestsWait
from truetune.checks.log.tensor_cores_stand_idle import TensorCoresStandIdle
from truetune.checks.pairs.kto_imbalance import KtoImbalance
from truetune.checks.put_causes_of_losses_first import put_causes_of_losses_first
from truetune.checks.read_files_beside_log import CAP_NAMES
from truetune.checks.server_concurrency_caps import HOW_TO_RAISE, find_smallest_cap_in_server_log
from truetune.checks.source.apply_chat_template_returns_dict import ApplyChatTemplateReturnsDict
from truetune.checks.source.cast_or_comparison_never_varies import CastOrComparisonNeverVaries
from truetune.checks.source.custom_loss_breaks_gradient_accumulation import (
    CustomLossBreaksGradientAccumulation,
)
from truetune.checks.source.generation_row_by_row import ASKS_SERVER, GenerationRowByRow
from truetune.checks.source.kv_cache_left_off import KvCacheLeftOff
from truetune.checks.source.nccl_transport_switched_off_in_code import (
    NcclTransportSwitchedOffInCode,
)
from truetune.checks.source.prepared_schedule_length_divided_by_processes import (
    PreparedScheduleLengthDividedByProcesses,
)
from truetune.checks.source.reference_lacks_the_sft_adapter import ReferenceLacksTheSftAdapter
from truetune.checks.source.rows_padded_to_a_fixed_length import RowsPaddedToAFixedLength
from truetune.checks.source.settings_never_passed import SettingsNeverPassed
from truetune.checks.source.trained_in_eval_mode import TrainedInEvalMode
from truetune.checks.source.training_computed_in_float32 import TrainingComputedInFloat32
from truetune.checks.source.vllm_engine_arguments_slow_generation import (
    VllmEngineArgumentsSlowGeneration,
)
from truetune.checks.tokens.truncation_leaves_no_label import TruncationLeavesNoLabel
from truetune.logs.facts_in_files_beside_log import FilesBeside, RunBeside
from truetune.logs.run_log import RunLog

CALL_IN_ADVICE = re.compile(r"\b[\w.]{2,60}\(\)")
"""A call that advice names: `model.train()`"""
FULL_MEMORY = "known as cuda-out-of-memory (truetune explain cuda-out-of-memory)"
PIECES = "PYTORCH_CUDA_ALLOC_CONF"
NO_LABEL_LEFT = TruncationLeavesNoLabel.name()
NAN_OF_EMPTY_BATCHES = "a batch of them alone has a loss of 0 / 0, which is nan, and so is the mean"
"""What a finding on evaluation rows without a label says"""
DROPPED_ROWS = "drops rows without a label"
"""What is said of a trainer by default, which the log refutes"""
NO_LOGPS = "every log-probability of the answers is exactly 0"
"""How the finding on a log begins whose pairs have no token of an answer in the loss"""
MEMORY_FAULTS = {
    TrainedInEvalMode.name(): "eval() mode",
    RowsPaddedToAFixedLength.name(): "padding=",
    SettingsNeverPassed.name(): "",
}
"""Rule on a script -> what the error's own notes have to say beside it"""
ANY_CAUSE = "cause: more rows or longer rows"
"""How the note begins that lists what the message may mean where nothing tells more"""
ROWS_OR_GPUS = re.compile(r"shorter rows|more GPUs|halve per_device|lower per_device")
"""Advice that gains nothing where each GPU holds all states"""
FEW_AT_ONCE = 8
"""Requests at once below which a server does not profit from 32. Chosen, not measured: below a quarter of it"""
STEPS_OF_A_RUN = 10
"""From which on a log shows that a script ran. Chosen, not measured: a step or two may be of another try"""
LAYERS_ON_CPU = "layers-left-on-the-cpu"
ALL_TRUE = re.compile(r"all [\d,]+ labels are true")
CACHE_TURNED_OFF = "incompatible with gradient checkpointing"
"""What transformers prints where checkpointed layers leave the cache out"""
MAX_QUOTED = 120
"""Of a line of the log, in a note. Chosen, not measured: the whole message of transformers"""
JOB = re.compile(r"\b(?:JOB|STEP|Job|job)[ =]?(?:id)?[ =]?(\d{2,12})\b")
CAP_TEXT = re.compile(
    r"max[-_]num[-_]seqs|max[-_]running[-_]requests|max[-_]batch[-_]size|-np|--parallel"
)


def reconcile_findings(
    findings: Sequence[Finding], logs: Iterable[RunLog], beside: FilesBeside | None
) -> tuple[Finding, ...]:
    """The findings, corrected by what stands in the other files of the same check."""
    logs = list(logs)
    kept = _join_bool_cast_and_its_labels(_drop_repeated_job_ends(findings))
    kept = demote_findings_of_exchanged_sides(kept)
    kept = put_causes_of_losses_first(kept)
    kept = _join_float32_of_script_and_log(kept)
    kept = _explain_early_ended_rate_by_script(kept)
    kept = _explain_summed_loss_by_script(kept)
    kept = _explain_nan_evaluation_by_rows(kept)
    kept = _prove_unlabelled_pairs_by_log(kept)
    kept = _prove_wrong_reference_by_first_rewards(kept)
    kept = _put_memory_faults_before_error(kept)
    kept = _put_unread_sharding_before_memory_error(kept)
    kept = _prove_slow_transport_by_log(kept)
    kept = _add_server_reports_to_row_by_row(kept)
    kept = _prove_missing_cache_by_log(kept)
    kept = _drop_ollama_slots_advice_if_model_too_large(kept)
    kept = [_explain_cpu_layers_by_cache(one, logs) for one in kept]
    kept = [_weaken_stop_refuted_by_log(one, logs) for one in kept]
    if any(map(_does_server_report_full_cache, logs)):
        kept = [one for one in kept if not _is_only_about_concurrency_limit(one)]
    kept = [one for one in kept if not _are_rounded_updates_refuted_by_log(one, logs)]
    kept = [_add_step_times_of_logs(one, beside) for one in name_log_with_more_steps(kept, logs)]
    cap = _server_concurrency_limit_and_place(logs, beside)
    if cap is None:
        return tuple(kept)
    return tuple(_add_server_concurrency_limit(one, *cap) for one in kept)


def _does_server_report_full_cache(log: RunLog) -> bool:
    """Does a server say that its cache is full, so that a cap is not what makes requests wait?"""
    return (
        bool(log.inference_server_name)
        and log.output is not None
        and log.output.served.is_cache_full
    )


def _join_bool_cast_and_its_labels(findings: Sequence[Finding]) -> list[Finding]:
    """Joins two findings to one if a script's cast made all labels true: the cast is the cause, and
    the labels are its evidence.
    """
    casts = list(
        filter(_is_about_bool_cast, _findings_of_rule(findings, CastOrComparisonNeverVaries.name()))
    )
    imbalances = _findings_of_rule(findings, KtoImbalance.name())
    labels = [one for one in imbalances if ALL_TRUE.match(one.message) is not None]
    if not casts or not labels:
        return list(findings)
    messages = tuple(one.message.partition(":")[0] for one in labels)
    with_labels = replace(casts[0], evidence=(*casts[0].evidence, *messages))
    return [with_labels if one is casts[0] else one for one in findings if one not in labels]


def _join_float32_of_script_and_log(findings: list[Finding]) -> list[Finding]:
    """Joins the findings on a training in float32: the script says why, and the log proves it."""
    scripts = [one for one in findings if one.rule == TrainingComputedInFloat32.name()]
    logs = [one for one in findings if one.rule == TensorCoresStandIdle.name()]
    if len(scripts) != 1 or not logs:
        return findings
    proof = "the log has Lightning's warning that the tensor cores are not used"
    # What the log proves is certain, whatever the script leaves open.
    proved = replace(scripts[0], severity="warning", evidence=(*scripts[0].evidence, proof))
    return [proved if one is scripts[0] else one for one in findings if one not in logs]


def _explain_early_ended_rate_by_script(findings: list[Finding]) -> list[Finding]:
    """The help of a rate that ended early is that of the script's own fault, where one beside the log has it.

    A schedule "over the optimizer steps" is the very fault of one that a process steps for all others.
    """
    scripts = [
        one for one in findings if one.rule == PreparedScheduleLengthDividedByProcesses.name()
    ]
    if not scripts:
        return findings
    help_of_script = f"{scripts[0].remedy} ({_describe_place(scripts[0].cases[0])})"
    return [
        replace(one, remedy=help_of_script) if one.rule == LearningRateEndedEarly.name() else one
        for one in findings
    ]


def _explain_nan_evaluation_by_rows(findings: list[Finding]) -> list[Finding]:
    """A loss of the evaluation that is nan, where rows of that evaluation have no label left: these are its cause."""
    empty = list(filter(_is_about_unlabelled_evaluation_rows, findings))
    lost = list(filter(_is_evaluation_not_finite, findings))
    if not empty or not lost:
        return findings
    # The log proves that the rows are evaluated, whatever the trainer does with those of the training.
    proved = list(map(_unlabelled_rows_as_error, empty))
    first = proved[0]
    helped = [replace(one, remedy=f"{first.remedy}: {first.message}") for one in lost]
    rest = [one for one in findings if one not in empty and one not in lost]
    return [*proved, *helped, *rest]


def _is_about_unlabelled_evaluation_rows(finding: Finding) -> bool:
    """Is a finding about evaluation rows that have no label left?"""
    is_of_labels = finding.rule == NO_LABEL_LEFT
    return is_of_labels and any(NAN_OF_EMPTY_BATCHES in line for line in finding.evidence)


def _is_evaluation_not_finite(finding: Finding) -> bool:
    """Is a finding about an evaluation loss that is nan or infinite?"""
    return finding.rule == LossNotFinite.name() and finding.message.startswith("eval_loss")


def _unlabelled_rows_as_error(finding: Finding) -> Finding:
    """A finding on rows without a label as an error, where the log shows that the trainer did not drop them."""
    evidence = tuple(line for line in finding.evidence if DROPPED_ROWS not in line)
    return replace(finding, severity="error", evidence=evidence)


def _prove_unlabelled_pairs_by_log(findings: list[Finding]) -> list[Finding]:
    """Pairs whose answers are cut away, where the log shows that they were trained all the same: none was dropped."""
    ran = [
        one
        for one in findings
        if one.rule == DpoStuckAtLn2.name() and one.message.startswith(NO_LOGPS)
    ]
    if not ran:
        return findings
    return [
        _unlabelled_rows_as_error(one) if one.rule == NO_LABEL_LEFT else one for one in findings
    ]


def _prove_wrong_reference_by_first_rewards(findings: list[Finding]) -> list[Finding]:
    """A reference without the adapter of the SFT, where the first rewards of the log prove that it is another model."""
    shown = [one for one in findings if one.rule == RewardsNotZeroAtFirst.name()]
    if not shown:
        return findings
    return [
        replace(
            one, severity="error", evidence=(*one.evidence, f"the log shows it: {shown[0].message}")
        )
        if one.rule == ReferenceLacksTheSftAdapter.name()
        else one
        for one in findings
    ]


def _explain_summed_loss_by_script(findings: list[Finding]) -> list[Finding]:
    """A loss that is logged as a sum, where a script beside computes it: no update of transformers fixes that."""
    scripts = [one for one in findings if one.rule == CustomLossBreaksGradientAccumulation.name()]
    if not scripts:
        return findings
    place = _describe_place(scripts[0].cases[0])
    return [
        replace(
            one, remedy=f"{one.remedy.partition(';')[0]}; {place} is the cause: {scripts[0].remedy}"
        )
        if one.rule == LossIsASum.name()
        else one
        for one in findings
    ]


def _put_memory_faults_before_error(findings: list[Finding]) -> list[Finding]:
    """An error on full memory comes after the fault of the script that fills it, and its help names that fault first.

    Smaller batches and shorter rows gain little where a fault takes most of the memory.
    """
    for error in findings:
        causes = [one for one in findings if _is_cause_of_full_memory(one, error)]
        if causes:
            return _put_causes_before_error(findings, error, causes)
    return findings


def _put_unread_sharding_before_memory_error(findings: list[Finding]) -> list[Finding]:
    """An error on full memory comes after the ZeRO or FSDP file that was to prevent it, and is not in use.

    What the message may mean in general is left out: smaller rows and more GPUs gain nothing while each GPU holds all.
    """
    ended = _findings_of_rule(findings, RunEndedInAnException.name())
    errors = [one for one in ended if FULL_MEMORY in one.evidence]
    unread = _findings_of_rule(findings, ShardingFileNotRead.name())
    causes = [one for one in unread if UNLESS_BY_DEFAULT not in one.evidence]
    if not errors or not causes:
        return findings
    plain = _memory_error_without_general_advice(errors[0])
    kept = [plain if one is errors[0] else one for one in findings]
    return _put_causes_before_error(kept, plain, causes)


def _findings_of_rule(findings: Iterable[Finding], rule: str) -> list[Finding]:
    """The findings of the rule of this name."""
    return [one for one in findings if one.rule == rule]


def _memory_error_without_general_advice(error: Finding) -> Finding:
    """An error on full memory without what such a message may mean in general."""
    evidence = tuple(text for text in error.evidence if not text.startswith(ANY_CAUSE))
    advice = [part for part in error.remedy.split("; ") if not ROWS_OR_GPUS.search(part)]
    return replace(error, evidence=evidence, remedy="; ".join(advice))


def _put_causes_before_error(
    findings: list[Finding], error: Finding, causes: Sequence[Finding]
) -> list[Finding]:
    """The findings, with the faults that fill the memory right before the error, as errors themselves."""
    ordered: list[Finding] = []
    for one in findings:
        if one is error:
            ordered += [replace(cause, severity="error") for cause in causes]
            ordered.append(_with_help_of_the_cause(error, causes[0]))
        elif one not in causes:
            ordered.append(one)
    return ordered


def _with_help_of_the_cause(error: Finding, cause: Finding) -> Finding:
    """An error on full memory, whose help begins with the fault that fills it."""
    place = f" ({_describe_place(cause.cases[0])})" if cause.cases else ""
    remedy = f"{cause.remedy}{place}: see {cause.rule}"
    rest = _without_repeated_advice(error.remedy, cause.remedy)
    if PIECES not in error.remedy and rest:
        remedy += f". Only if that does not suffice: {rest}"
    evidence = tuple(one for one in error.evidence if PIECES not in one)
    return replace(error, remedy=remedy, evidence=evidence)


def _without_repeated_advice(advice: str, given: str) -> str:
    """Advice without the parts that name no other calls than advice that is given already."""
    calls = set(CALL_IN_ADVICE.findall(given))
    parts = [part for part in advice.split("; ") if not _names_only_calls_of(part, calls)]
    return "; ".join(parts)


def _names_only_calls_of(part: str, calls: set[str]) -> bool:
    """Does a part of advice name calls, and no others than these?"""
    named = set(CALL_IN_ADVICE.findall(part))
    return bool(named) and named <= calls


def _is_cause_of_full_memory(finding: Finding, error: Finding) -> bool:
    """Is a finding a fault that took the memory which an error lacks, as the error's own notes say?"""
    if error.rule != RunEndedInAnException.name() or FULL_MEMORY not in error.evidence:
        return False
    sign = MEMORY_FAULTS.get(finding.rule)
    if sign is None or (finding.rule == SettingsNeverPassed.name() and finding.severity != "error"):
        return False
    return any(sign in one for one in error.evidence)


def _prove_slow_transport_by_log(findings: list[Finding]) -> list[Finding]:
    """A variable that a job sets is a warning where the log shows that NCCL took the slower way for it."""
    logs = [one for one in findings if one.rule == GradientsCrossASlowNetwork.name()]
    return [
        replace(one, severity="warning", evidence=(*one.evidence, f"the log: {shown[0].message}"))
        if one.rule == NcclTransportSwitchedOff.name()
        and one.severity == "info"
        and (shown := [log for log in logs if one.message.partition("=")[0] in log.message])
        else one
        for one in findings
    ]


def _add_server_reports_to_row_by_row(findings: list[Finding]) -> list[Finding]:
    """A loop that asks a server row by row, with the reports of the server that show it."""
    reports = [one for one in findings if one.rule == ServerAskedOneByOne.name()]
    if not reports:
        return findings
    shown = f"the server's log shows it: {reports[0].message}"
    return [
        replace(one, evidence=(*one.evidence, shown), severity="warning")
        if one.rule == GenerationRowByRow.name() and one.message.startswith(ASKS_SERVER)
        else one
        for one in findings
    ]


def _prove_missing_cache_by_log(findings: list[Finding]) -> list[Finding]:
    """A generation without its cache, with the line of the log in which transformers says so."""
    shown = [
        case
        for one in findings
        if one.rule == FaultNamedInTheOutput.name()
        for case in one.cases
        if CACHE_TURNED_OFF in case.text
    ]
    if not shown:
        return findings
    said = f"the log says it ({_describe_place(shown[0])}): {shown[0].text[:MAX_QUOTED]}"
    return [
        replace(one, evidence=(*one.evidence, said)) if one.rule == KvCacheLeftOff.name() else one
        for one in findings
    ]


def _drop_ollama_slots_advice_if_model_too_large(findings: list[Finding]) -> list[Finding]:
    """The findings without the advice to let Ollama answer more requests at once, if the model does
    not fit the GPU: each slot takes a cache.
    """
    if not any(LAYERS_ON_CPU in text for one in findings for text in one.evidence):
        return findings
    return [one for one in findings if not _advises_more_ollama_slots(one)]


def _explain_cpu_layers_by_cache(finding: Finding, logs: Sequence[RunLog]) -> Finding:
    """Layers left on the CPU, with their cause: a cache that many requests at once make larger than
    the weights.
    """
    if not any(LAYERS_ON_CPU in text for text in finding.evidence):
        return finding
    sizes = [log.output.layers for log in logs if log.output is not None]
    large = [one for one in sizes if one.slots > 1 and one.cache_mib > one.weights_mib > 0]
    if not large:
        return finding
    worst = max(large, key=lambda one: one.cache_mib)
    each = worst.cells // worst.slots
    fact = (
        f"the cache takes {worst.cache_mib / 1024:,.3g} GiB and the weights {worst.weights_mib / 1024:,.3g} GiB: it has"
        f" room for {worst.slots} requests at once (OLLAMA_NUM_PARALLEL, --parallel) of {each:,} tokens each (num_ctx)"
    )
    fewer = (
        f"set OLLAMA_NUM_PARALLEL=1 (--parallel 1), which takes {worst.cache_mib / worst.slots / 1024:,.3g} GiB for the"
        f" cache, or as many requests as come at once, and num_ctx to what a request needs; then {finding.remedy}"
    )
    return replace(finding, evidence=(fact, *finding.evidence), remedy=fewer)


def _advises_more_ollama_slots(finding: Finding) -> bool:
    """Is a finding about requests that wait for OLLAMA_NUM_PARALLEL?"""
    is_of_cap = finding.rule == ServerCapMakesRequestsWait.name()
    return is_of_cap and "OLLAMA_NUM_PARALLEL" in finding.message


def _weaken_stop_refuted_by_log(finding: Finding, logs: Sequence[RunLog]) -> Finding:
    """A call that would stop the script under a newer release is a note where the log shows that the script ran.

    Adding the dictionary to a list stops; a length of it is wrong without a word, and no log refutes that.
    """
    if finding.rule != ApplyChatTemplateReturnsDict.name():
        return finding
    if not any(" + " in case.text for case in finding.cases) or not _is_of_unknown_release(finding):
        return finding
    ran = [log for log in logs if not log.is_numbered and log.last_step >= STEPS_OF_A_RUN]
    if len({case.file for case in finding.cases}) != 1 or len(ran) != 1:
        return finding
    why = (
        f"{Path(ran[0].path).name} has {ran[0].last_step:,.0f} steps: if this script wrote it, its transformers is"
        " older than 5, and the line works there"
    )
    return replace(finding, severity="info", evidence=(*finding.evidence[1:], why))


def _are_rounded_updates_refuted_by_log(finding: Finding, logs: Sequence[RunLog]) -> bool:
    """Is a finding about updates that all round away, although the one training log shows that the
    weights move?
    """
    if finding.rule != PureBf16UpdatesRoundedAway.name():
        return False
    trainings = [log for log in logs if log.curve("loss") and not log.inference_server_name]
    return len(trainings) == 1 and have_weights_moved(trainings[0])


def _is_of_unknown_release(finding: Finding) -> bool:
    """Does no file say which release runs?"""
    return any("no file here says which release" in text for text in finding.evidence)


def _is_about_bool_cast(finding: Finding) -> bool:
    """Is a finding about a cast, and not about a comparison?"""
    return "bool(" in finding.message


def _drop_repeated_job_ends(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that say once more, from another log, that the same job was ended."""
    kept: list[Finding] = []
    by_job: dict[str, int] = {}
    for finding in findings:
        job = _ended_job_number(finding)
        if job and job in by_job:
            first = kept[by_job[job]]
            cases = (*first.cases, *(case for case in finding.cases if case not in first.cases))
            # The log with the steps says more than the launcher's own, which has none.
            fuller = max(
                first, finding, key=lambda one: (" after step " in one.message, len(one.evidence))
            )
            kept[by_job[job]] = replace(fuller, cases=cases)
            continue
        if job:
            by_job[job] = len(kept)
        kept.append(finding)
    return kept


def _ended_job_number(finding: Finding) -> str:
    """The number of the scheduler's job whose end a finding is about; empty for all others."""
    if finding.rule != RunWasKilled.name():
        return ""
    match = next((m for case in finding.cases if (m := JOB.search(case.text)) is not None), None)
    return match[1] if match is not None else ""


def _add_step_times_of_logs(finding: Finding, beside: FilesBeside | None) -> Finding:
    """A finding on the transport between nodes, with the times of steps of logs on several numbers of nodes."""
    if finding.rule not in (NcclTransportSwitchedOff.name(), NcclTransportSwitchedOffInCode.name()):
        return finding
    timed = [run for run in beside.runs if run.step_seconds] if beside is not None else []
    if len({(run.nodes, run.processes) for run in timed}) < 2:
        return finding
    if not any(name in finding.message for name in BETWEEN_NODES):
        return finding
    timed.sort(key=lambda run: (run.nodes or 1, run.processes or 0))
    return replace(finding, evidence=(*finding.evidence, *map(_describe_step_time, timed)))


def _describe_step_time(run: RunBeside) -> str:
    """The seconds a step of one run, with its nodes and processes, in words."""
    nodes = run.nodes or 1
    return (
        f"{Path(run.file).name}: {run.step_seconds:.3g} s a step"
        f" ({nodes} node{'s' * (nodes > 1)}, {run.processes or '?'} processes)"
    )


def _is_only_about_concurrency_limit(finding: Finding) -> bool:
    """Is a finding about a cap of requests and nothing else?"""
    if finding.rule not in (ServerGeneratesSlowly.name(), VllmEngineArgumentsSlowGeneration.name()):
        return False
    return all(CAP_TEXT.search(case.text) for case in finding.cases)


def _server_concurrency_limit_and_place(
    logs: Sequence[RunLog], beside: FilesBeside | None
) -> tuple[str, int, Case] | None:
    """(setting, its value, where it stands) of what lets a server work on few requests at once;
    None if there is none.
    """
    for log in logs:
        cap = find_smallest_cap_in_server_log(log)
        if cap is not None and log.output is not None and cap.value < FEW_AT_ONCE:
            return cap.setting, cap.value, Case(cap.text, file=log.output.file, line=cap.line)
    for one in beside.settings_named(*CAP_NAMES) if beside is not None else ():
        if isinstance(one.value, int) and one.value < FEW_AT_ONCE:
            return one.name, one.value, Case(one.text, file=one.file, line=one.line)
    return None


def _add_server_concurrency_limit(
    finding: Finding, setting: str, value: int, case: Case
) -> Finding:
    """A finding that advises to ask for many answers at once, with what the server does with them."""
    if finding.rule == GenerationRowByRow.name() and not finding.message.startswith(ASKS_SERVER):
        return finding
    if finding.rule not in (GenerationRowByRow.name(), ServerAskedOneByOne.name()):
        return finding
    place = _describe_place(case)
    at_once = "one request" if value == 1 else f"{value} requests"
    return replace(
        finding,
        severity="info",
        message=f"{finding.message}; the server works on {at_once} at a time anyway ({place}: {case.text})",
        remedy=(
            f"first {HOW_TO_RAISE[setting]}: until then requests that are sent together wait for one another. Then send"
            " as many at once as the server works on, with AsyncOpenAI or a ThreadPoolExecutor"
        ),
        cases=(*finding.cases, case),
    )


def _describe_place(case: Case) -> str:
    """The file and the line of a case."""
    return f"{Path(case.file or '').name}:{case.line}"
