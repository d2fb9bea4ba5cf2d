"""Rule: one thing that can be wrong at one station of the path.

A rule is one module `checks/<station>/<rule_name>.py` that holds one subclass of `Rule`. Its name is
the module's name in kebab-case; the module's docstring is its page (`truetune explain`). What it looks at, its
subject, is the station's: data with a tokenizer (`DataRule`), settings, a source file, a run's log, a checkpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from truetune.checks.by_trainer import ByFact
from truetune.checks.figure import Figure
from truetune.checks.findings import Case, Finding, Fix
from truetune.checks.judgement import Unmet
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch
from truetune.memory.machine import Launch
from truetune.render.probes import Probes
from truetune.render.tokenizer import Tokenizer
from truetune.spec.config import Config
from truetune.spec.run import RunSpec, Severity
from truetune.trainers import UNKNOWN, TrainerFacts

if TYPE_CHECKING:
    from truetune.auditing.audit import Audit  # noqa: F401
    from truetune.checkpoint.checkpoint import Checkpoint  # noqa: F401
    from truetune.doctor.environment import Environment  # noqa: F401
    from truetune.generation.evaluated import Evaluated  # noqa: F401
    from truetune.generation.inquest import Inquest  # noqa: F401
    from truetune.generation.looks import Watched  # noqa: F401
    from truetune.generation.service import Service  # noqa: F401
    from truetune.logs.log import RunLog  # noqa: F401
    from truetune.source.module import Module  # noqa: F401

MAX_CASES = 10_000
"""Places that a finding keeps; its count is of all. A terminal shows SHOWN_CASES of them, JSON and SARIF all."""
Subject = TypeVar("Subject")
NO_LINE = Unmet("no line of a batch was seen", asked=True)
NOT_RECITED = Unmet("nothing was recited", "truetune rehearse has a miniature of the model recite")


@dataclass(frozen=True, slots=True)
class Setup:
    """What every rule may look at before the first row."""

    spec: RunSpec
    tokenizer: Tokenizer
    probes: Probes
    """Renderings of small conversations with this template, made once; they need no data."""
    trainer: TrainerFacts = UNKNOWN
    """What the trainer does that will read the rows"""


class Rule(Generic[Subject]):
    """Looks at one subject and says what it found."""

    code: ClassVar[str]
    severity: ClassVar[Severity]
    """The highest severity that it gives; shown by `truetune rules`."""
    moot_where: ClassVar[tuple[str, ...]] = ()
    """Names of rules whose findings explain this one's, at the same places: it is told as evidence of theirs then"""
    by_trainer: ClassVar[tuple[ByFact, ...]] = ()
    """The facts of the trainer that its severity depends on"""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @classmethod
    def name(cls) -> str:
        return cls.__module__.rsplit(".", 1)[-1].replace("_", "-")

    @classmethod
    def title(cls) -> str:
        """The fault in one line: the beginning of the rule's page."""
        return (inspect.getdoc(inspect.getmodule(cls)) or "").partition("\n")[0]

    def unmet(self) -> Unmet | None:
        """Why this rule can say nothing about its subject; None where it can. Asked where it found nothing."""
        return None

    def figure(self) -> str:
        """What it measured where nothing is wrong, in one line with its numbers; empty where it measures nothing."""
        return ""

    def findings(self) -> Iterator[Finding]:
        """Called once, when everything of the subject has been seen."""
        yield from ()

    def finding(
        self,
        message: str,
        remedy: str,
        *,
        severity: Severity | None = None,
        evidence: Iterable[str] = (),
        cases: Iterable[Case] = (),
        count: int | None = None,
        total: int | None = None,
        fix: Fix | None = None,
        figure: Figure | None = None,
    ) -> Finding:
        """A finding of this rule."""
        return Finding(
            rule=self.name(),
            code=self.code,
            severity=severity or self.severity,
            message=message,
            remedy=remedy,
            evidence=tuple(evidence),
            cases=tuple(cases)[:MAX_CASES],
            count=count,
            total=total,
            fix=fix,
            figure=figure,
        )


class DataRule(Rule[Setup]):
    """Looks at the setup and at every batch of rows, then says what it found."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.setup = setup
        self.spec = setup.spec
        self.tokenizer = setup.tokenizer
        self.probes = setup.probes

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Called once, before the first batch, with the rows of `eval_data` where there are any."""

    def batch(self, batch: Batch) -> None:
        """Called for each batch, in file order. Keep counts and at most MAX_CASES cases, never rows."""

    def broken_line(self, origin: Origin, reason: str) -> None:
        """Called for each line that holds no row; `reason` begins with its place."""

    def told(self) -> dict[str, Any]:
        """Called after the last batch: figures by name, plain values, for the `data` of a report."""
        return {}


class ConfigRule(Rule[Config]):
    """Looks at the settings of a run, whatever stack they were written for."""

    methods: ClassVar[tuple[str, ...]] = ()
    """Training methods that it is about; empty: all"""
    stacks: ClassVar[tuple[str, ...]] = ()
    """Stacks that it is about; empty: all"""

    def unmet(self) -> Unmet | None:
        method, stack = self.subject.spec.training.method, self.subject.stack
        if self.methods and method not in self.methods:
            return Unmet(f"it is about training by {' or '.join(self.methods)}, not by {method}")
        if self.stacks and stack not in self.stacks:
            return Unmet(f"it is about settings of {' or '.join(self.stacks)}")
        return None


class DeviceRule(Rule[Launch]):
    """Looks at the settings of a run on the machine where it starts."""

    def __init__(self, subject: Launch) -> None:
        super().__init__(subject)
        self.config = subject.config
        self.training = subject.config.spec.training
        self.machine = subject.machine


class SourceRule(Rule["Module"]):
    """Looks at one Python file or notebook. It gives one finding for each place in it."""


class LogRule(Rule["RunLog"]):
    """Looks at the log of a run."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Curves without which it can say nothing"""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of training that it is about (`RunLog.kind`); all where it names none"""

    def unmet(self) -> Unmet | None:
        if self.kinds and self.subject.kind not in self.kinds:
            return Unmet(f"it is about {' or '.join(self.kinds)}, and the log is of {self.subject.kind}")
        lacking = [name for name in self.needs if not self.subject.curve(name)]
        return Unmet(f"the log has no {', '.join(lacking)}") if lacking else None


class CheckpointRule(Rule["Checkpoint"]):
    """Looks at the files of a saved model or adapter."""


class BatchRule(Rule["Audit"]):
    """Looks at what reaches the loss in a real trainer."""

    def unmet(self) -> Unmet | None:
        return None if self.subject.samples else NO_LINE


def _holds(measured: dict[str, Any]) -> bool:
    """Was it not measured, or is it within its tolerance? nan is not."""
    return "value" not in measured or measured["value"] <= measured["tolerance"]


class LawRule(Rule["Audit"]):
    """Judges one law that was measured on the model: fires where it is broken."""

    law: ClassVar[str]
    """Name of the module in `truetune.probe.laws`, in kebab-case"""
    NAN: ClassVar[str] = "activation-range"
    """The law that explains a nan in the others"""

    def findings(self) -> Iterator[Finding]:
        measured, cause = (self.subject.laws.get(law, {}) for law in (self.law, self.NAN))
        if not _holds(measured) and not (self.law != self.NAN and isnan(measured["value"]) and not _holds(cause)):
            yield from self.broken(measured["value"], measured["tolerance"], measured["evidence"])

    def broken(self, value: float, tolerance: float, evidence: dict[str, Any]) -> Iterator[Finding]:
        """What a broken law means; nan counts as broken."""
        raise NotImplementedError

    def unmet(self) -> Unmet | None:
        measured = self.subject.laws.get(self.law)
        if measured is None:
            return Unmet("the law was not measured", "measure all with --laws all")
        if "value" not in measured:
            return Unmet(str(measured.get("untested", "it was not measured")), asked=bool(measured.get("failed")))
        if not _holds(measured):
            if isnan(measured["value"]):
                return Unmet(f"the loss is not a number, which {self.NAN} explains")
            return Unmet(f"it differs ({measured['value']:.2g}), which other findings or the settings explain")
        return None

    def figure(self) -> str:
        measured = self.subject.laws[self.law]
        return f"{measured['value']:.2g}, tolerance {measured['tolerance']:.1g} {measured.get('unit', '')}".strip()


class RecitationRule(Rule["Audit"]):
    """Looks at what a miniature of the run recites after memorising a few rows."""

    def unmet(self) -> Unmet | None:
        found = self.subject.facts.get("recitation") or {}
        return None if found.get("rows") or found.get("pairs") else NOT_RECITED


class AnswersRule(Rule["Watched"]):
    """Looks at what a model answers, at some steps of its training or after it."""


class CauseRule(Rule["Inquest"]):
    """Looks for what makes a finished model answer badly."""


class EvaluationRule(Rule["Evaluated"]):
    """Looks at the losses and scores of a finished model, and at what measured them."""


class ServingRule(Rule["Service"]):
    """Looks at what a server makes of a model."""


class EnvironmentRule(Rule["Environment"]):
    """Looks at the user's interpreter, its packages, and the machine."""
