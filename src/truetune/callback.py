"""The audit as a trainer's callback, for scripts and notebooks that make their own trainer.

It audits when training begins, prints the report, and sends the findings to the experiment trackers that the trainer
reports to. The trade-off: the trackers have begun their run by then, so a run that the audit stops stands among theirs,
with the findings in it. `truetune run` audits before any tracker begins.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch
from transformers import TrainerCallback

import truetune
from truetune.auditing.temporary_folder_removed_with_process import open_workspace_until_exit
from truetune.errors import TruetuneError, UsageError
from truetune.probe.choose_rollout_recorder import (
    are_rollouts_recorded,
    make_rollout_recorder,
)
from truetune.probe.contain_own_failures_in_user_program import describe_error
from truetune.probe.find_trainers_and_their_datasets import innermost_trainer_on_stack
from truetune.probe.record_run_ready_to_train import save_tokenizer


class AuditCallback(TrainerCallback):
    """Audits the run when its first `train()` begins, and prints the report to stderr.

    `given`, `batches`, `laws` and the other settings are those of `truetune.audit`. With `on_error="stop"` it raises a
    TruetuneError where a process has findings at or above `fail_on`; every process of the run raises it then.
    `report` is the AuditReport of this process afterwards; None where the audit failed. What was asked for and could
    not be judged is printed by each process, and stops no run: `report.outcome` is `not judged` then, and
    `report.exit_code()` 3.

    The first rollouts of TRL's GRPOTrainer, RLOOTrainer, OnlineDPOTrainer and DistillationTrainer are judged after the
    first steps, in a report of their own: `rollout_report`. It is printed, stops the run and goes to the trackers as
    `report` does.

    With `report_to_trackers` the findings of process 0 go to the trackers of the trainer's `report_to`: their counts as
    curves, messages and fixes as a table, and an alert on errors (Weights & Biases, Trackio; a tag in MLflow). Rows of
    the data are not sent. A tracker that fails is named on stderr, and the run continues.
    """

    def __init__(
        self,
        *,
        on_error: Literal["stop", "warn"] = "stop",
        report_to_trackers: bool = True,
        **settings: Any,
    ) -> None:
        self.on_error, self.report_to_trackers, self.settings = (
            on_error,
            report_to_trackers,
            settings,
        )
        self.report: Any = None
        self.rollout_report: Any = None
        self._recorder: Any = None
        self._are_rollouts_lost = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Audit the run; called by the trainer when model, optimizer and data loader are ready."""
        if self.report is not None:
            return
        trainer = innermost_trainer_on_stack()
        failed = self._audit_print_and_return_is_failed(
            trainer, parts.get("train_dataloader"), args
        )
        self._conclude(self.report, failed, trainer, args, state, control)
        if are_rollouts_recorded(trainer):
            self._recorder = self._start_recorder(trainer)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Judge the rollouts once enough were seen; called by the trainer after each step of the optimizer."""
        recorder = self._recorder
        # By steps: a process whose recording failed must ask the others at the same step, or they would wait for it.
        if (
            recorder is not None
            and state.global_step - recorder.steps_at_start >= recorder.wanted_steps
        ):
            self._judge_rollouts(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Judge the rollouts of a training that was shorter than was wanted; called by the trainer."""
        if self._recorder is not None:
            self._judge_rollouts(args, state, control)

    def _start_recorder(self, trainer: Any) -> Any:
        """Begin to note the rollouts; where that fails, it is printed."""
        recorder = make_rollout_recorder(
            trainer, int(self.settings.get("batches", 8)), lose=self._lose_rollouts
        )
        try:
            recorder.start()
        except Exception as error:
            recorder.stop()
            self._lose_rollouts(describe_error(error))
        return recorder

    def _lose_rollouts(self, reason: str) -> None:
        """Note that the rollouts are not judged, and print why."""
        self._are_rollouts_lost = True
        print(
            f"truetune: the rollouts are not judged: {reason}; the run continues", file=sys.stderr
        )

    def _judge_rollouts(self, args: Any, state: Any, control: Any) -> None:
        """Judge the rollouts that were noted, and print the report."""
        recorder, self._recorder = self._recorder, None
        trainer = innermost_trainer_on_stack()
        failed = False
        try:
            if not self._are_rollouts_lost:
                failed = self._report_rollouts(recorder, trainer, args)
        except Exception as error:
            self._lose_rollouts(describe_error(error))
        self._conclude(self.rollout_report, failed, trainer, args, state, control)

    def _report_rollouts(self, recorder: Any, trainer: Any, args: Any) -> bool:
        """Make the report of what was noted, and print it; is there a finding that fails the run?"""
        steps = recorder.take()
        folder = open_workspace_until_exit()
        save_tokenizer(trainer.processing_class, folder)
        tokenizer = folder / "tokenizer"
        chosen = {
            name: self.settings[name]
            for name in ("select", "ignore", "fail_on", "allow_unjudged")
            if name in self.settings
        }
        self.rollout_report = truetune.audit_rollout(
            steps, tokenizer if tokenizer.is_dir() else None, **chosen
        )
        failed = bool(self.rollout_report.failed())
        if failed or args.process_index == 0:
            _print_report(self.rollout_report)
        return failed

    def _conclude(
        self, report: Any, failed: bool, trainer: Any, args: Any, state: Any, control: Any
    ) -> None:
        """Send a report's findings, and stop the run where a process has one that fails it.

        Raises:
            TruetuneError: `on_error` is "stop", and this or another process has such a finding.
        """
        if self.report_to_trackers and report is not None and state.is_world_process_zero:
            _send_findings(report, trainer, args, state, control)
        if self.on_error == "stop" and _is_true_in_any_process(failed, args.device):
            raise TruetuneError(
                "the audit stopped the run: its findings are printed above, or by another process"
            )

    def _audit_print_and_return_is_failed(self, trainer: Any, loader: Any, args: Any) -> bool:
        """Audit the run and print the report where it says something; is there a finding that fails the run?

        A failure of ours is printed and is no finding: it must not end the user's run, and the other processes are
        still waited for. Raises UsageError for settings that `truetune.audit` does not take.
        """
        failed = False
        try:
            self.report = truetune.audit(
                trainer, loader, rollouts_follow=are_rollouts_recorded(trainer), **self.settings
            )
            failed = bool(self.report.failed())
            lacks = self.report.is_incomplete()
            if failed or lacks or args.process_index == 0:
                _print_report(self.report)
            if lacks and not failed:
                print(
                    f"truetune: not judged: {_describe_what_was_not_judged(self.report)}; the run continues",
                    file=sys.stderr,
                )
        except UsageError:
            raise
        except Exception as error:
            print(
                f"truetune: not judged: {describe_error(error)}; the run continues", file=sys.stderr
            )
        return failed


def _send_findings(report: Any, trainer: Any, args: Any, state: Any, control: Any) -> None:
    """Send a report's findings to the trainer's trackers; what fails is printed on stderr."""
    from truetune.training.findings_for_experiment_trackers import findings_for_trackers
    from truetune.training.send_to_experiment_trackers import TrainerMoment, send_to_trackers

    try:
        tracked = findings_for_trackers(report, state.global_step)
        moment = TrainerMoment(args, state, control, trainer.model)
        failures = send_to_trackers(
            trainer.callback_handler.callbacks, moment, tracked.curves, tracked.table, tracked.alert
        )
    except Exception as error:
        # Of ours, outside any tracker: it must not end the user's run either.
        failures = [describe_error(error)]
    for failure in failures:
        print(
            f"truetune: a tracker did not take the findings: {failure}; the run continues",
            file=sys.stderr,
        )


def _print_report(report: Any) -> None:
    """Print a report on stderr."""
    from truetune.report.report_terminal import report_as_text

    print(report_as_text(report), file=sys.stderr)


def _describe_what_was_not_judged(report: Any) -> str:
    """What was asked for and not judged, in one line."""
    return (
        "; ".join(part.what for part in report.requested_not_judged())
        or "no rule had anything to look at"
    )


def _is_true_in_any_process(failed: bool, device: Any) -> bool:
    """Is `failed` true in any process of the run?"""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return failed
    flag = torch.tensor(float(failed), device=device)
    torch.distributed.all_reduce(flag)
    return bool(flag)
