"""Blocks that set up a run: Python that ends with `run` (a trainer, or a model with `loader`) in its names.

The names at hand are those of `tests.auditing.tiny` and of torch, transformers, TRL, peft and datasets as imported
below; `rows` are eight chats, `given` the rows before any preparation (`rows` where the block sets no other), `ranks`,
where set, the loaders of several processes. A block that defines `step(batch)` is a loop of the user's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import peft
import torch
import transformers
import trl
from torch.optim.optimizer import register_optimizer_step_pre_hook

import truetune
from tests.auditing import tiny
from truetune.checks.findings import Finding
from truetune.checks.judge_audit import AuditReport, audit
from truetune.checks.rule import Rule
from truetune.probe.own_loop_hook import OwnLoop
from truetune.probe.record_run_ready_to_train import observe_run
from truetune.settings.run_spec import RunSpec


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What an audit finds in the run that a block sets up, with this rule alone."""
    return audited(rule, text).findings


def audited(rule: type[Rule[Any]], text: str) -> AuditReport:
    """What an audit says of the run that a block sets up, with this rule alone."""
    laws = (rule.law,) if hasattr(rule, "law") else ()
    names = run(text)
    if "step" in names:
        return of_steps(names, rule)
    if "ranks" in names:
        return of_ranks(names["ranks"], names["run"], names["tokenizer"], rule)
    asked = {name: names[name] for name in ("loader", "loss", "given", "canary") if name in names}
    tokenizer = None if hasattr(names["run"], "args") else names["tokenizer"]
    return truetune.audit(
        names["run"], tokenizer=tokenizer, laws=laws, select=[rule.name()], **asked
    )


def of_steps(names: dict[str, Any], rule: type[Rule[Any]]) -> AuditReport:
    """What is said of a loop of the user's own, whose steps are watched as `truetune run` does."""
    loop = OwnLoop({"batches": 100, "laws": "none", "folder": str(tiny.scratch())})

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        loop.before_step(optimizer, args, kwargs)

    watch = register_optimizer_step_pre_hook(before_step)
    collate = transformers.DataCollatorForSeq2Seq(names["tokenizer"])
    try:
        for batch in torch.utils.data.DataLoader(
            tiny.encoded(names["rows"]), batch_size=2, collate_fn=collate
        ):
            names["step"](batch)
    finally:
        watch.remove()
    subject = loop.take(in_place=True)
    record = subject.observe(tiny.scratch(), {"laws": "none"})
    return audit([record], RunSpec(select=(rule.name(),)))


def of_ranks(loaders: list[Any], model: Any, tokenizer: Any, rule: type[Rule[Any]]) -> AuditReport:
    """What is said of the records of several processes, each with its loader."""
    records = []
    for rank, loader in enumerate(loaders):
        folder = tiny.scratch()
        records.append(observe_run(folder, model=model, loader=loader, tokenizer=tokenizer))
        records[-1].facts |= {"rank": rank, "world": len(loaders)}
    return audit(records, RunSpec(select=(rule.name(),)))


def run(text: str) -> dict[str, Any]:
    """The names that a block leaves."""
    names: dict[str, Any] = {
        name: value for name, value in vars(tiny).items() if not name.startswith("_")
    }
    names |= {
        "torch": torch,
        "transformers": transformers,
        "trl": trl,
        "peft": peft,
        "datasets": datasets,
    }
    names |= {"tokenizer": tiny.tokenizer(), "model": tiny.model(), "rows": tiny.chats()}
    names["given"] = datasets.Dataset.from_list(names["rows"])
    torch.manual_seed(0)
    exec(compile(text, "<page>", "exec"), names)
    return names
