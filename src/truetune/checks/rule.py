"""Rule: one thing that can be wrong at one station of the path.

A rule is one module `checks/<station>/<rule_name>.py` that holds one subclass of `Rule`. Its name is
the module's name in kebab-case; the module's docstring is its page (`truetune explain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from truetune.checks.findings import Case, Finding
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.probes import Probes
from truetune.render.tokenizer import Tokenizer
from truetune.spec.run import RunSpec, Severity

MAX_CASES = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """What every rule may look at before the first row."""

    spec: RunSpec
    tokenizer: Tokenizer
    probes: Probes
    """Renderings of small conversations with this template, made once; they need no data."""


class Rule:
    """Looks at the setup and at every batch, then says what it found."""

    code: ClassVar[str]
    severity: ClassVar[Severity]
    """The highest severity that it gives; shown by `truetune rules`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.spec = setup.spec
        self.tokenizer = setup.tokenizer
        self.probes = setup.probes

    @classmethod
    def name(cls) -> str:
        return cls.__module__.rsplit(".", 1)[-1].replace("_", "-")

    def evaluation(self, rows: Iterable[Conversation]) -> None:
        """Called once, before the first batch, with the rows of `eval_data` where there are any."""

    def batch(self, batch: Batch) -> None:
        """Called for each batch, in file order. Keep counts and at most MAX_CASES cases, never rows."""

    def findings(self) -> Iterator[Finding]:
        """Called once, after the last batch."""
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
        )
