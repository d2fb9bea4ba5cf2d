"""Blocks that set up a run: Python that ends with `run` (a trainer, or a model with `loader`) in its names.

The names at hand are those of `tests.auditing.tiny` and of torch, transformers, TRL, peft and datasets as imported
below; `rows` are eight chats, `given` the rows before any preparation (`rows` where the block sets no other), `ranks`,
where set, the loaders of several processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import peft
import torch
import transformers
import trl

import truetune
from tests.auditing import tiny
from truetune.checks.audit import audit
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule, Rule
from truetune.probe.observe import observe
from truetune.spec.run import RunSpec


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What an audit finds in the run that a block sets up, with this rule alone."""
    laws = (rule.law,) if issubclass(rule, LawRule) else ()
    names = run(text)
    if "ranks" in names:
        return of_ranks(names["ranks"], names["run"], names["tokenizer"], rule)
    asked = {name: names[name] for name in ("loader", "loss", "given", "canary") if name in names}
    tokenizer = None if hasattr(names["run"], "args") else names["tokenizer"]
    return truetune.audit(names["run"], tokenizer=tokenizer, laws=laws, select=[rule.name()], **asked).findings


def of_ranks(loaders: list[Any], model: Any, tokenizer: Any, rule: type[Rule[Any]]) -> tuple[Finding, ...]:
    """What is found in the records of several processes, each with its loader."""
    records = []
    for rank, loader in enumerate(loaders):
        folder = tiny.scratch()
        records.append(observe(folder, model=model, loader=loader, tokenizer=tokenizer))
        records[-1].facts |= {"rank": rank, "world": len(loaders)}
    return audit(records, RunSpec(select=(rule.name(),))).findings


def run(text: str) -> dict[str, Any]:
    """The names that a block leaves."""
    names: dict[str, Any] = {name: value for name, value in vars(tiny).items() if not name.startswith("_")}
    names |= {"torch": torch, "transformers": transformers, "trl": trl, "peft": peft, "datasets": datasets}
    names |= {"tokenizer": tiny.tokenizer(), "model": tiny.model(), "rows": tiny.chats()}
    names["given"] = datasets.Dataset.from_list(names["rows"])
    torch.manual_seed(0)
    exec(compile(text, "<page>", "exec"), names)
    return names
