"""What a report says in one sentence, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truetune.checks.report import AuditReport, DataReport, Report
from truetune.report import audit_terminal
from truetune.report.supervision_headline import supervision_verdict
from truetune.report.visible_text import count_noun

if TYPE_CHECKING:
    from truetune.checks.examine import DoctorReport
    from truetune.checks.lint import LintReport
    from truetune.checks.movement import MovementReport
    from truetune.evaluation.evaluated_report import EvaluationReport
    from truetune.evaluation.report import SampleReport
    from truetune.rehearsal.report import RehearsalReport
    from truetune.serving.report import ServiceReport


def report_verdict(report: Report) -> str:
    """What was found out, in one sentence."""
    if own := VERDICTS_BY_CLASS.get(type(report).__name__):
        return own(report)
    if isinstance(report, AuditReport):
        return audit_terminal.audit_verdict(report)
    if isinstance(report, DataReport) and report.rows:
        return supervision_verdict(report).plain
    return _findings_sentence(report, count_noun(max(1, len(report.subjects)), "subject"))


def next_step(report: Report, runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """What to do next: the remedy of the gravest finding, else the command that follows; empty where there is none.
    `runs` are those of its JSON."""
    gravest = next((finding for finding in report.findings if finding.severity != "info"), None)
    if gravest:
        return gravest.remedy
    if report.outcome == "not judged":
        return next((part.unlock or part.reason for part in report.missing()), NOTHING_TO_JUDGE)
    if runs:
        return NEXT_STEPS["RunReport" if any(run["looks"] for run in runs) else "curves alone"]
    if not getattr(report, "trains", True):
        return NEXT_STEPS["code that trains nothing"]
    return next(
        (NEXT_STEPS[kind.__name__] for kind in type(report).__mro__ if kind.__name__ in NEXT_STEPS),
        "",
    )


def _findings_sentence(report: Report, where: str) -> str:
    grave = [finding for finding in report.findings if finding.severity != "info"]
    if not grave and report.outcome == "not judged":
        return (
            "Not judged:"
            f" {next(iter(report.missing()), f'no rule has anything to look at in {where}')}."
        )
    if not grave:
        return f"No findings in {where}; {count_examined(report)}."
    others = f"; and {count_noun(len(grave) - 1, 'finding')} more" if grave[1:] else ""
    return f"{grave[0].message} ({grave[0].rule}){others}"


def count_examined(report: Report) -> str:
    """How much was examined and is fine: `83 checks examined and fine`."""
    return f"{count_noun(len(report.examined), 'check')} examined and fine"


def _lint_verdict(report: LintReport) -> str:
    return _findings_sentence(report, count_noun(report.files, "file"))


def _environment_verdict(report: DoctorReport) -> str:
    here = report.environment
    if broken := [name for name, error in here.loads.items() if error]:
        return f"{', '.join(broken)} can't be imported in this environment."
    if here.torch is None:
        installed = "torch" in here.packages
        return f"torch {'was not imported' if installed else 'is not installed'}: " + (
            "what it can use is not known."
            if installed
            else "this environment can check, and not train."
        )
    if not here.torch.available:
        return f"torch sees no GPU: this environment trains on its {here.machine.cpus or '?'} CPUs."
    bf16 = "works" if here.torch.bf16 else "fails"
    return (
        f"torch uses {count_noun(len(here.torch.devices), 'GPU')} ({here.torch.devices[0].name}), and"
        f" bf16 {bf16}."
    )


def _movement_verdict(report: MovementReport) -> str:
    from truetune.report.weight_diff_terminal import describe_movement

    return describe_movement(report.manifest)


def _evaluation_verdict(report: EvaluationReport) -> str:
    found, level = report.evaluated, f"{100 * report.confidence:.3g} %"
    if found is None:
        return (
            f"{count_noun(len(report.tasks.tasks), 'task')} of lm-eval measured."
            if report.tasks
            else "Nothing measured."
        )
    parts, loss, change, stops = [], found.model.loss(), found.change(), found.model.stops
    if loss:
        between = "" if loss.low is None else f" ({level}: {loss.low:.3g} to {loss.high:.3g})"
        parts.append(f"the loss is {loss.mean:.3g} nats a token{between}")
    if change and found.other:
        than = "the base's" if found.is_base else f"that of {found.other.name}"
        apart = (
            f"{abs(change.difference):.2g} {'below' if change.difference < 0 else 'above'} {than}"
        )
        parts.append(
            f"{apart}{', which may be chance' if change.p >= 0.05 else ''} (p {change.p:.2g})"
        )
    if stops:
        parts.append(
            f"it would stop at {stops.likely:,} of {count_noun(stops.ends, 'end')} of answers"
        )
    if report.metrics and report.metrics.groups:
        parts.append(
            f"{count_noun(sum(group.samples for group in report.metrics.groups), 'answer')} judged"
        )
    return f"On {count_noun(found.rows, 'held-out row')} {'; '.join(parts) or 'nothing could be measured'}."


def _server_verdict(report: ServiceReport) -> str:
    from truetune.report.server_check_terminal import observation_lines

    if report.service.lost:
        return f"Broken off: what the server does was not seen of {', '.join(report.service.lost)}."
    seen = list(observation_lines(report.service))
    bad = [f"{name}: {text}" for name, text, good in seen if not good]
    if bad:
        return f"Served otherwise than trained: {'; '.join(bad)}."
    return (
        f"{count_noun(len(seen), 'part')} looked at, each served as trained."
        if seen
        else "Nothing could be looked at."
    )


def _answers_verdict(report: SampleReport) -> str:
    from truetune.report.answers_terminal import describe_success

    return f"{describe_success(report)}."


def _rehearsal_verdict(report: RehearsalReport) -> str:
    parts, rows = [], report.recited
    if rows:
        whole, ended = sum(row.recited for row in rows), sum(row.stopped for row in rows)
        parts.append(
            f"a miniature trained on {count_noun(len(rows), 'row')} recites {whole} of them, and stops at"
            f" the end of {ended}"
        )
    if report.pairs:
        grown = sum(pair.after > pair.before for pair in report.pairs)
        parts.append(f"the margin grows in {grown} of {count_noun(len(report.pairs), 'pair')}")
    return "; ".join((*parts, audit_terminal.audit_verdict(report)))


NOTHING_TO_JUDGE = (
    "name what is to be judged: data with -t TOKENIZER, settings, a training script, a log or a"
    " model"
)
VERDICTS_BY_CLASS: Mapping[str, Callable[[Any], str]] = {
    "DoctorReport": _environment_verdict,
    "EvaluationReport": _evaluation_verdict,
    "LintReport": _lint_verdict,
    "MovementReport": _movement_verdict,
    "RehearsalReport": _rehearsal_verdict,
    "SampleReport": _answers_verdict,
    "ScoreReport": _answers_verdict,
    "ServiceReport": _server_verdict,
}
"""By the class of a report, which is not imported for its name alone"""
NEXT_STEPS: Mapping[str, str] = {
    "code that trains nothing": (
        "only the code was judged; judge what it answers: truetune score PREDICTIONS"
    ),
    "curves alone": (
        "see what it answers, and whether it stops: truetune sample RUN --data HELD-OUT"
    ),
    "AuditReport": (
        "let the run continue; then ask what it answers: truetune sample OUTPUTS --data HELD-OUT"
    ),
    "DataReport": "see what your own trainer makes of these rows: truetune run -- python train.py",
    "DoctorReport": "look at the data: truetune check DATA -t MODEL",
    "EvaluationReport": "look at its answers: truetune sample MODEL --data HELD-OUT",
    "LintReport": "look at the data: truetune check DATA -t MODEL",
    "MovementReport": "ask it something: truetune sample MODEL --data HELD-OUT",
    "RehearsalReport": "train: truetune train SETTINGS, or your own command",
    "RunReport": "measure it: truetune evaluate RUN --data HELD-OUT --against base",
    "ScoreReport": (
        "ask the model itself, which tells why as well: truetune sample MODEL --data HELD-OUT"
    ),
    "SampleReport": "measure it: truetune evaluate MODEL --data HELD-OUT --against base",
}
"""Where nothing is wrong"""
