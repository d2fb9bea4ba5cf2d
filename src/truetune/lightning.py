"""The audit as a Lightning callback: `Trainer(callbacks=[truetune.lightning.AuditCallback()])`.

When `fit` is about to take its first step, the callback finds the model and the tokenizer in the module, audits the
first batches of the real data loader with the module's own `training_step` as the loss, and prints the report. What a
`training_step` logs meanwhile is dropped. The module's attributes and the random states are put back.

The trade-off: a `training_step` with manual optimization would step the optimizer, so it is not called; its batches are
audited, and the laws on the loss are not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the same package under its older name
    from pytorch_lightning.callbacks import Callback

import truetune
from truetune.errors import TruetuneError, UsageError
from truetune.probe.contain_own_failures_in_user_program import describe_error
from truetune.probe.restore_state_changed_by_observing_run import preserve_state


class AuditCallback(Callback):  # type: ignore[misc]  # Lightning is no dependency, so it has no types here
    """Audits the run before the first step of `fit`, prints the report to stderr, and sends it to the loggers.

    Arguments:
        model: the transformers model that the module trains; found in the module if it has one alone.
        tokenizer: found as `tokenizer` of the module, its data module or the collator.
        on_error: with "stop", findings at or above `fail_on` raise; every process of the run raises then.
        report_to_trackers: send counts, messages and fixes of the findings to `Trainer(logger=...)`: Weights & Biases
            (with an alert on errors), MLflow, TensorBoard. Rows of the data are not sent.
        settings: `given`, `batches`, `laws`, `keys`, `fail_on` and others of `truetune.audit`.

    `report` is the AuditReport of this process afterwards; None if the audit itself failed, which ends no run.

    Raises:
        UsageError: the module holds no transformers model or several of them, and `model` is not given.
        TruetuneError: there are findings, and `on_error` is "stop".
    """

    def __init__(
        self,
        *,
        model: Any = None,
        tokenizer: Any = None,
        on_error: Literal["stop", "warn"] = "stop",
        report_to_trackers: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.on_error, self.report_to_trackers = on_error, report_to_trackers
        self.report: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Audit the run; called by Lightning when model and data loader are ready."""
        if self.report is not None:
            return
        failed = False
        try:
            self.report = self._audit(trainer, pl_module)
            failed = self.report.failed()
            if failed or self.report.is_incomplete() or trainer.is_global_zero:
                _print_report(self.report)
        except UsageError:
            raise
        except Exception as error:
            # A failure of ours must not end the user's run. The other processes are waited for below.
            print(
                f"truetune: not judged: {describe_error(error)}; the run continues", file=sys.stderr
            )
        if self.report_to_trackers and self.report is not None and trainer.is_global_zero:
            _send_findings_to_loggers(self.report, trainer)
        if self.on_error == "stop" and trainer.strategy.reduce_boolean_decision(failed, all=False):
            raise TruetuneError(
                "the audit stopped the run: its findings are printed above, or by another process"
            )

    def _audit(self, trainer: Any, module: Any) -> Any:
        """The report of the module's model and the trainer's data loader."""
        settings = dict(self.settings)
        if not module.automatic_optimization:
            settings["laws"] = "none"
            print(
                "truetune: not judged: laws on the loss, since the module optimizes by hand",
                file=sys.stderr,
            )

        def training_step_loss(_: Any, batch: Any) -> Any:
            batch = trainer.strategy.batch_to_device(batch)
            with trainer.strategy.precision_plugin.train_step_context():
                found = module.training_step(batch, 0)
            return found["loss"] if isinstance(found, dict) else found

        loaders = trainer.train_dataloader
        if not isinstance(loaders, torch.utils.data.DataLoader):
            # Not a UsageError: such a run is right, and only its audit is not possible here.
            raise TruetuneError(
                "the trainer has several data loaders: call truetune.audit(model, loader) for each"
            )
        with _module_without_logging(module):
            return truetune.audit(
                self.model if self.model is not None else _model_of_module(module),
                loaders,
                self.tokenizer or _tokenizer_of(module, trainer.datamodule),
                loss=training_step_loss,
                **settings,
            )


def _model_of_module(module: Any) -> Any:
    """The transformers or PEFT model of a Lightning module, the outermost one with weights that are trained.

    Raises UsageError where it has none, or several.
    """
    found: list[Any] = []
    for part in module.modules():
        inside = any(part is inner for outer in found for inner in outer.modules())
        if (
            not inside
            and _is_transformers_or_peft_model(part)
            and any(p.requires_grad for p in part.parameters())
        ):
            found.append(part)
    if len(found) != 1:
        raise UsageError(
            f"{type(module).__name__} holds {len(found)} transformers models that are trained:"
            " give AuditCallback(model=...)"
        )
    return found[0]


def _is_transformers_or_peft_model(part: Any) -> bool:
    """Is this a model of transformers, or one that PEFT has wrapped?"""
    return isinstance(part, PreTrainedModel) or hasattr(part, "peft_config")


def _tokenizer_of(*holders: Any) -> Any:
    """The `tokenizer` or `processor` of the module or data module; None leaves it to the audit, which asks the
    collator."""
    held = (
        getattr(holder, name, None) for holder in holders for name in ("tokenizer", "processor")
    )
    return next((found for found in held if hasattr(found, "save_pretrained")), None)


@contextmanager
def _module_without_logging(module: Any) -> Iterator[None]:
    """Inside, `self.log` of the module does nothing, and afterwards the module's attributes are as before.

    Lightning allows no `self.log(on_step=True)` before the first step, and would keep what was logged.
    """
    # The parts of the module, too: a metric of torchmetrics counts what it has seen.
    with preserve_state(module, *module.children()):
        # Past torch's own `__setattr__`, which only knows parameters and modules.
        vars(module).update(log=_drop_values, log_dict=_drop_values)
        yield


def _drop_values(*_: Any, **__: Any) -> None:
    """Take what a training step logs, and keep nothing."""


def _print_report(report: Any) -> None:
    """Print a report on stderr."""
    from truetune.report.report_terminal import report_as_text

    print(report_as_text(report), file=sys.stderr)


def _send_findings_to_loggers(report: Any, trainer: Any) -> None:
    """Send a report's findings to the trainer's loggers; what fails is printed on stderr."""
    from truetune.training.findings_for_experiment_trackers import findings_for_trackers

    tracked = findings_for_trackers(report, trainer.global_step)
    for logger in trainer.loggers:
        send = _SENDERS.get(type(logger).__name__)
        try:
            if send is not None:
                logger.log_metrics(tracked.curves, step=tracked.table.step)
                send(logger, tracked)
        except Exception as error:  # whatever the library of a tracker raises
            print(
                f"truetune: a tracker did not take the findings: {type(logger).__name__}:"
                f" {describe_error(error)}; the run continues",
                file=sys.stderr,
            )


def _send_to_tensorboard(logger: Any, tracked: Any) -> None:
    """Send the table as a Markdown text."""
    from truetune.training.send_to_experiment_trackers import table_as_markdown

    if tracked.table.rows:
        logger.experiment.add_text(
            tracked.table.name, table_as_markdown(tracked.table), tracked.table.step
        )
        logger.experiment.flush()


def _send_to_wandb(logger: Any, tracked: Any) -> None:
    """Send the table and the alert."""
    table, alert = tracked.table, tracked.alert
    if table.rows:
        logger.log_table(table.name, columns=list(table.columns), data=table.rows)
    if alert is not None:
        logger.experiment.alert(alert.title, alert.text, level=alert.level)


def _send_to_mlflow(logger: Any, tracked: Any) -> None:
    """Send the table as an artifact, and the alert as a tag."""
    from truetune.training.send_to_experiment_trackers import table_as_columns

    table, client = tracked.table, logger.experiment
    if table.rows:
        client.log_table(logger.run_id, table_as_columns(table), f"{table.name}.json")
    if tracked.alert is not None:
        client.set_tag(logger.run_id, "truetune", tracked.alert.title)


# By the names of Lightning's classes: importing one needs the library of its tracker.
_SENDERS = {
    "TensorBoardLogger": _send_to_tensorboard,
    "WandbLogger": _send_to_wandb,
    "MLFlowLogger": _send_to_mlflow,
}
