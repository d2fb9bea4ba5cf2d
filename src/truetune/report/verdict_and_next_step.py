"""What a report says in one sentence, and what to do next: the first line of the terminal, the JSON and the page.

Kinds of reports are told apart by the name of their class. The trade-off: a name is not checked by mypy, but to
import the classes would load torch, servers and statistics for a sentence on a JSONL file
(test_the_next_step_is_the_remedy_of_the_gravest_finding and test_each_says_what_it_found hold it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truetune.checks.reports import AuditReport, DataReport, Report, RolloutReport
from truetune.report import audit_terminal
from truetune.report.supervision_headline import supervision_verdict
from truetune.report.visible_text import count_noun

if TYPE_CHECKING:
    from truetune.checks.check_environment import DoctorReport
    from truetune.checks.lint import LintReport
    from truetune.checks.weight_diff_report import MovementReport
    from truetune.evaluation.evaluation_report import EvaluationReport
    from truetune.evaluation.sample_report import SampleReport
    from truetune.generation.evaluation_loss_and_score_types import EvaluationResults
    from truetune.rehearsal.rehearsal_report import RehearsalReport
    from truetune.rewards.reward_report import RewardReport
    from truetune.serving.service_report import ServiceReport

SIGNIFICANCE_LEVEL = 0.05
"""Differences of a larger p are said to be chance perhaps. The usual level, not measured; `evaluation_terminal` colours
by the same. At 0.1 one comparison of equal models in ten claims a difference; at 0.025 a real one needs more rows."""


def report_verdict(report: Report) -> str:
    """What a report found, in one sentence."""
    # A kind with a sentence of its own comes first, since most kinds inherit from Report or
    # DataReport as well.
    own = VERDICTS_BY_CLASS.get(type(report).__name__)
    if own:
        return own(report)
    if isinstance(report, AuditReport):
        return audit_terminal.audit_verdict(report)
    if isinstance(report, DataReport) and report.rows:
        return supervision_verdict(report).plain
    return _first_problem_or_none_sentence(
        report, count_noun(max(1, len(report.subjects)), "subject")
    )


def next_step_of_report(report: Report, runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """What to do next, in one line.

    Args:
        report: what was found.
        runs: the `runs` of its JSON, where a run's log was looked at.

    Returns:
        The remedy of the gravest finding, else the command that follows; empty where there is none.
    """
    # Findings come sorted by severity, so the first that is no note is the gravest.
    for finding in report.findings:
        if finding.severity != "info":
            return finding.remedy
    if report.outcome == "not judged":
        for part in report.requested_not_judged():
            return part.unlock or part.reason
        return NOTHING_TO_JUDGE
    if runs:
        return NEXT_STEPS["RunReport" if any(run["looks"] for run in runs) else "curves alone"]
    return _next_step_of_clean_report(report)


def _next_step_of_clean_report(report: Report) -> str:
    """The command that follows a report without findings; empty where none does."""
    if not getattr(report, "trains", True):
        return NEXT_STEPS["code that trains nothing"]
    if not getattr(report, "writes_text", True):
        return NEXT_STEPS["scores or embeddings"]
    # By the names of its class and of those it inherits from: an import of each class would load its whole package.
    for kind in type(report).__mro__:
        if kind.__name__ in NEXT_STEPS:
            return NEXT_STEPS[kind.__name__]
    return ""


def _first_problem_or_none_sentence(report: Report, examined: str) -> str:
    """A sentence with the first finding that is more than a note, or that there is none; `examined`
    names what was looked at.
    """
    grave = [finding for finding in report.findings if finding.severity != "info"]
    # "No findings" must not be read over something that nobody looked at.
    if not grave and report.outcome == "not judged":
        return (
            "Not judged:"
            f" {next(iter(report.requested_not_judged()), f'no rule has anything to look at in {examined}')}."
        )
    if not grave:
        return f"No findings in {examined}; {describe_count_examined_and_fine(report)}."
    # The rest is counted: a headline of all of them is no headline.
    others = f"; and {count_noun(len(grave) - 1, 'finding')} more" if grave[1:] else ""
    return f"{grave[0].message} ({grave[0].rule}){others}"


def describe_count_examined_and_fine(report: Report) -> str:
    """How much was examined and is fine: `83 checks examined and fine`."""
    return f"{count_noun(len(report.examined), 'check')} examined and fine"


def _rollout_verdict(report: RolloutReport) -> str:
    """The verdict on rollouts: the gravest finding, or that there is none."""
    return _first_problem_or_none_sentence(
        report,
        f"{count_noun(report.completions, 'completion')} of {count_noun(report.rollouts, 'rollout')}",
    )


def _lint_verdict(report: LintReport) -> str:
    """The verdict of `truetune lint`: what the rules say of the files."""
    return _first_problem_or_none_sentence(report, count_noun(report.files, "file"))


def _environment_verdict(report: DoctorReport) -> str:
    """The verdict of `truetune doctor`: what fails to import, or what torch can use."""
    here = report.environment
    # An import that fails is worse than a package that is missing: whoever sees it listed
    # believes that it works.
    broken = [name for name, error in here.loads.items() if error]
    if broken:
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
    # bf16 decides which settings can be trained with, so it belongs in the sentence.
    bf16 = "works" if here.torch.bf16 else "fails"
    return (
        f"torch uses {count_noun(len(here.torch.devices), 'GPU')} ({here.torch.devices[0].name}), and"
        f" bf16 {bf16}."
    )


def _least_and_most_moved_verdict(report: MovementReport) -> str:
    """The verdict of `truetune diff`: which kinds of tensors moved least and most."""
    from truetune.report.weight_diff_terminal import describe_least_and_most_moved

    return describe_least_and_most_moved(report.manifest)


def _evaluation_verdict(report: EvaluationReport) -> str:
    """The verdict of an evaluation: the loss, its difference from the other model's, and the stops."""
    evaluated = report.evaluated
    if evaluated is None:
        tasks = report.tasks.tasks if report.tasks else ()
        if report.tasks:
            return f"{count_noun(len(tasks), 'task')} of lm-eval measured."
        return "Nothing measured."
    parts = list(_loss_difference_and_stop_clauses(evaluated, f"{100 * report.confidence:.3g} %"))
    if report.metrics and report.metrics.groups:
        samples = sum(group.samples for group in report.metrics.groups)
        parts.append(f"{count_noun(samples, 'answer')} judged")
    rows = count_noun(evaluated.rows, "held-out row")
    return f"On {rows} {'; '.join(parts) or 'nothing could be measured'}."


def _loss_difference_and_stop_clauses(evaluated: EvaluationResults, level: str) -> Iterator[str]:
    """The loss, how far it is from the other model's, and at how many ends of answers the model would stop."""
    loss, change, stops = (
        evaluated.model.mean_loss_of_token_kind(),
        evaluated.loss_change_of_token_kind(),
        evaluated.model.stops,
    )
    if loss:
        between = "" if loss.low is None else f" ({level}: {loss.low:.3g} to {loss.high:.3g})"
        yield f"the loss is {loss.mean:.3g} nats/token{between}"
    if change and evaluated.other:
        than = "the base's" if evaluated.is_base else f"that of {evaluated.other.name}"
        side = "below" if change.difference < 0 else "above"
        chance = ", which may be chance" if change.p >= SIGNIFICANCE_LEVEL else ""
        yield f"{abs(change.difference):.2g} {side} {than}{chance} (p {change.p:.2g})"
    if stops:
        ends = count_noun(stops.ends, "end")
        yield f"it would stop at {stops.likely:,} of {ends} of answers"


def _server_verdict(report: ServiceReport) -> str:
    """The verdict on a server: what is served otherwise than trained."""
    from truetune.report.server_check_terminal import observation_lines

    # A check that was broken off may have seen only what is fine.
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


def _reward_verdict(report: RewardReport) -> str:
    """The verdict on a reward function: what it pays, and what else."""
    from truetune.report.reward_terminal import (
        agreement_with_verifier,
        attack_lines,
        summary_of_trial,
    )

    paid = [f"{name} ({count} of {of})" for name, count, of in attack_lines(report.trial) if count]
    also = f"; it also pays for {', '.join(paid)}" if paid else ""
    agreement = "".join(f"; {agreement_with_verifier(one)}" for one in report.trial.comparisons)
    return f"{summary_of_trial(report.trial)}{also}{agreement}."


def _answers_verdict(report: SampleReport) -> str:
    """The verdict on sampled answers: how many are right and well-formed."""
    from truetune.report.answers_terminal import describe_success

    return f"{describe_success(report)}."


def _rehearsal_verdict(report: RehearsalReport) -> str:
    """The verdict of a rehearsal: what the miniature memorised, then what the loss is on."""
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
    "MovementReport": _least_and_most_moved_verdict,
    "RehearsalReport": _rehearsal_verdict,
    "RewardReport": _reward_verdict,
    "SampleReport": _answers_verdict,
    "RolloutReport": _rollout_verdict,
    "ScoreReport": _answers_verdict,
    "ServiceReport": _server_verdict,
}
"""By the class of a report, which is not imported for its name alone"""
NEXT_STEPS: Mapping[str, str] = {
    "code that trains nothing": (
        "only the code was judged; judge what it answers: truetune score PREDICTIONS"
    ),
    # A run without samples of its answers: only its log was looked at.
    "curves alone": (
        "see what it answers, and whether it stops: truetune sample RUN --data HELD-OUT"
    ),
    # A model that gives numbers answers nothing.
    "scores or embeddings": "let the run continue; then measure it on held-out rows",
    "AuditReport": (
        "let the run continue; then ask what it answers: truetune sample OUTPUTS --data HELD-OUT"
    ),
    "DataReport": "see what your own trainer makes of these rows: truetune run -- python train.py",
    "DoctorReport": "look at the data: truetune check DATA -t MODEL",
    "EvaluationReport": "look at its answers: truetune sample MODEL --data HELD-OUT",
    "LintReport": "look at the data: truetune check DATA -t MODEL",
    "MovementReport": "ask it something: truetune sample MODEL --data HELD-OUT",
    "RehearsalReport": "train: truetune train SETTINGS, or your own command",
    "RolloutReport": "let the run continue; then look at its curves: truetune diagnose OUTPUTS",
    "RewardReport": "train with it, and see what its rewards say: truetune diagnose LOG",
    "RunReport": "measure it: truetune evaluate RUN --data HELD-OUT --against base",
    "ScoreReport": (
        "ask the model itself, which tells why as well: truetune sample MODEL --data HELD-OUT"
    ),
    "SampleReport": "measure it: truetune evaluate MODEL --data HELD-OUT --against base",
}
"""Where nothing is wrong"""
