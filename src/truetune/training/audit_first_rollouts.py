"""The audit of a training by rewards: its reward functions are tried before the first step, and its first rollouts are
judged after the first few.

The data loader of such a training holds prompts alone, so that nothing can be judged before something was sampled. The
trade-off: the first steps are taken before the rules on rollouts have their say; a run that they forbid ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from truetune.checks.judge_rollouts import judge_rollouts
from truetune.checks.reports import Report
from truetune.probe.find_trainers_and_their_datasets import innermost_trainer_on_stack
from truetune.probe.record_rollouts_of_trl_trainer import RolloutRecorder
from truetune.render.template_probes import Probes
from truetune.rewards.check_reward import check_reward
from truetune.rewards.reward_process import RewardFunctionError
from truetune.rewards.trial_in_progress import TrialOptions
from truetune.settings.run_spec import RunSpec
from truetune.training.preflight_checks import PreflightChecks
from truetune.training.reward_names import is_built_in

# Chosen, not measured: one generation, and the first use of a second one, are a few passes; no run waits for more.
MAX_PASSES = 8
"""Micro-batches that are recorded at most"""
# Chosen, not measured: a function that is slower than that is tried by `truetune reward`, where the user waits for it.
MAX_TRIAL_SECONDS = 30.0
"""Seconds in which each reward function is tried before the run"""
THE_ROLLOUTS = "the first rollouts"


def try_own_reward_functions(spec: RunSpec, say: Callable[[str], None]) -> Iterator[Report]:
    """Try each reward function of the user's on the first rows, as `truetune reward` does.

    Raises:
        UsageError: a function needs a column that the rows don't have.
        DataError: the rows can't be read.
    """
    for name in spec.training.rewards:
        if is_built_in(name):
            continue
        options = TrialOptions(max_seconds=MAX_TRIAL_SECONDS)
        try:
            report = check_reward(name, spec.data, options=options, spec=spec)
        except RewardFunctionError as error:
            # It may run all the same where it is not confined: the trial is an offer, and no condition.
            say(f"{name} was not tried: {error}")
            continue
        # Nobody asked here for a judgement of every form that an answer may have.
        yield replace(report, not_judged=())


class RolloutAudit(TrainerCallback):
    """Records the first rollouts of a trainer, and has them judged. Raises FindingsError where they forbid the run."""

    def __init__(
        self,
        checks: PreflightChecks,
        spec: RunSpec,
        probes: Probes,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            checks: takes the report, and ends the run where it has findings.
            spec: selects the rules.
            probes: tokenizer and template of the run.
            note: is called once the rollouts were judged, whatever comes of it.
        """
        self._checks, self._spec, self._probes, self._note = checks, spec, probes, note
        self._recorder: RolloutRecorder | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Begin to record, in the first process."""
        if not PartialState().is_main_process:
            return
        trainer = innermost_trainer_on_stack()
        recorder = RolloutRecorder(trainer, MAX_PASSES, lose=self._lose)
        recorder.start()
        self._recorder = recorder

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Judge the rollouts once enough were seen."""
        if self._recorder is not None and self._recorder.is_complete:
            self._judge()

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Judge what was seen of a training that is shorter."""
        if self._recorder is not None:
            self._judge()

    def _judge(self) -> None:
        """Judge what was recorded."""
        assert self._recorder is not None
        recorder, self._recorder = self._recorder, None
        report = judge_rollouts(
            recorder.take(), self._spec, probes=self._probes, name="truetune train"
        )
        try:
            self._checks.keep_report_or_stop_on_findings(THE_ROLLOUTS, report)
        finally:
            self._note()

    def _lose(self, reason: str) -> None:
        """Say why the rollouts are not judged."""
        self._recorder = None
        self._checks.listener.say(f"{THE_ROLLOUTS} are not judged: {reason}")
