"""The audit as a trainer's callback, for scripts and notebooks that make their own trainer."""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch
from transformers import TrainerCallback

import truetune
from truetune.errors import TruetuneError, UsageError
from truetune.probe.failure_boundary import describe_error
from truetune.probe.find_trainers_and_their_datasets import innermost_trainer_on_stack


class AuditCallback(TrainerCallback):
    """Audits the run when its first `train()` begins, and prints the report to stderr.

    `given`, `batches`, `laws` and the other settings are those of `truetune.audit`. With `on_error="stop"` it raises a
    TruetuneError where a process has findings at or above `fail_on`; every process of the run raises it then.
    `report` is the AuditReport of this process afterwards; None where the audit failed. What was asked for and could
    not be judged is printed by each process, and stops no run: `report.outcome` is `not judged` then, and
    `report.exit_code()` 3.
    """

    def __init__(self, *, on_error: Literal["stop", "warn"] = "stop", **settings: Any) -> None:
        self.on_error, self.settings = on_error, settings
        self.report: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Audit the run; called by the trainer when model, optimizer and data loader are ready."""
        if self.report is not None:
            return
        failed = False
        try:
            self.report = truetune.audit(
                innermost_trainer_on_stack(), parts.get("train_dataloader"), **self.settings
            )
            failed = self.report.failed()
            lacks = self.report.is_incomplete()
            if failed or lacks or args.process_index == 0:
                _print_report(self.report)
            if lacks and not failed:
                print(
                    f"truetune: not judged: {_list_not_judged(self.report)}; the run continues",
                    file=sys.stderr,
                )
        except UsageError:
            raise
        except Exception as error:
            # A failure of ours must not end the user's run. The other processes are still waited for below.
            print(
                f"truetune: not judged: {describe_error(error)}; the run continues", file=sys.stderr
            )
        if self.on_error == "stop" and _is_true_in_any_process(failed, args.device):
            raise TruetuneError(
                "the audit stopped the run: its findings stand above, or with another process's"
            )


def _print_report(report: Any) -> None:
    """Print a report on stderr."""
    from truetune.report.report_terminal import report_as_text

    print(report_as_text(report), file=sys.stderr)


def _list_not_judged(report: Any) -> str:
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
