"""Reports: the results of one check, as everything that displays them reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import RANK, Finding
from truetune.checks.judgement import Examined, Judgement, NotJudged, requested_parts_not_judged
from truetune.data.count_media import NO_MEDIA as NO_MEDIA
from truetune.data.count_media import Media
from truetune.encoding.batch import Example
from truetune.encoding.token_counts import Ledger
from truetune.lazy_report_drawers import load_drawer
from truetune.settings.run_spec import RunSpec, Severity

if TYPE_CHECKING:
    from truetune.auditing.audit import Sample
    from truetune.checks.learned_tokens_against_ideal_mask import LearnedTokenCounts
    from truetune.logs.run_log import RunLog


Outcome = Literal["findings", "not judged", "no findings"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of the examples in tokens."""

    counts: NDArray[np.int64]
    """(bins,) examples with edges[i] <= length < edges[i+1]"""
    edges: NDArray[np.int64]
    """(bins + 1,)"""
    median: int
    p95: int
    longest: int
    limit: int | None
    """max_length, where the run sets one"""
    over: int
    """examples longer than the limit"""
    lost_tokens: int
    """tokens behind the limit"""
    lost_supervised: int
    """supervised tokens behind the limit"""
    media: Media = NO_MEDIA
    """images, sound and video of the rows, whose tokens are not counted"""


@dataclass(frozen=True, slots=True)
class TokenView:
    """One example, token by token, for the token view."""

    example: Example
    ids: NDArray[np.int32]
    source: NDArray[np.uint8]
    supervised: NDArray[np.bool_]
    starts: NDArray[np.int32]
    """(tokens,) the character of the example's text that holds the token's first byte."""
    pieces: tuple[str, ...]
    """(tokens,) the characters that each token stands for; a byte of a split character as a lone surrogate
    (`surrogateescape`)."""
    template: str | None = None
    """The name of the chat template that rendered it, where the tokenizer has several."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that was looked at."""

    kind: str
    """`Axolotl configuration`, `Python source`, `adapter`, ..."""
    path: str
    facts: tuple[tuple[str, str], ...] = ()
    """Short facts on it, by name"""
    log: RunLog | None = field(default=None, compare=False, repr=False)
    """Of a run: its curves"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The result of looking at something: what was looked at, and the findings."""

    spec: RunSpec
    subjects: tuple[Subject, ...] = ()
    findings: tuple[Finding, ...]
    """By severity, then by code."""
    examined: tuple[Examined, ...] = ()
    """What was looked for and is not there"""
    not_judged: tuple[NotJudged, ...] = ()
    """What could not be judged, and why"""
    known: tuple[Finding, ...] = ()
    """Findings that an earlier report had too (`fingerprint_findings.accept_known_findings`); they do not fail"""
    seconds: float

    def worst(self) -> Severity | None:
        """The highest severity of the findings; None where there are none."""
        return max((f.severity for f in self.findings), key=RANK.__getitem__, default=None)

    def failed(self) -> bool:
        """Is there a finding at or above `spec.fail_on`?"""
        worst = self.worst()
        return worst is not None and RANK[worst] >= RANK[self.spec.fail_on]

    def requested_not_judged(self) -> tuple[NotJudged, ...]:
        """What was asked for and could not be judged."""
        return tuple(requested_parts_not_judged(self.not_judged))

    def folded_findings(self) -> tuple[Finding, ...]:
        """The findings that a terminal names in one line, since others are the answer to what was asked."""
        return ()

    @property
    def outcome(self) -> Outcome:
        """`findings` where one is graver than a note; `not judged` where something asked for is missing, or no rule had
        anything to look at; else `no findings`."""
        if self.failed() or any(finding.severity != "info" for finding in self.findings):
            return "findings"
        return "not judged" if self.is_incomplete() else "no findings"

    @property
    def is_verified(self) -> bool:
        """Was everything that counts compared with something known?

        Only then is "no findings" shown as a success.
        """
        return True

    def is_incomplete(self) -> bool:
        """Is something that was asked for not judged, or was there nothing to judge?"""
        # A report in which nothing was examined is no clean one, whatever it was about.
        return bool(self.requested_not_judged()) or not (
            self.examined or self.findings or self.known
        )

    def exit_code(self) -> int:
        """1 with findings at or above `spec.fail_on`, 3 where something asked for was not judged, else 0."""
        if self.failed():
            return 1
        return 3 if self.is_incomplete() and not self.spec.allow_unjudged else 0

    def more(self) -> dict[str, Any]:
        """The further entries that the JSON of this kind of report has, as plain values."""
        return {}

    def save_as(self, path: str | PathLike[str]) -> None:
        """Write it as what the name ends in: `.html` the page, `.json`, `.sarif`. Raises UsageError, OSError."""
        load_drawer("report as file")(self, path)

    def __repr__(self) -> str:
        """In short: its class, what was found, and where."""
        counts = Counter(finding.severity for finding in self.findings)
        listing = ", ".join(
            f"{counts[s]} {s}{'s' * (counts[s] != 1 and s != 'info')}" for s in RANK if counts[s]
        )
        about = ", ".join(dict.fromkeys(subject.path for subject in self.subjects)) or ", ".join(
            self.spec.data
        )
        return f"<{type(self).__name__} of {about or 'nothing'}: {listing or self.outcome}>"

    def __str__(self) -> str:
        """What the terminal shows."""
        text: str = load_drawer("report as text")(self)
        return text

    def _repr_html_(self) -> str:
        """The report as HTML for a notebook."""
        html: str = load_drawer("report as page")(self)
        return html


AnyReport = TypeVar("AnyReport", bound=Report)


def add_judgement(report: AnyReport, more: Judgement) -> AnyReport:
    """The report with what was judged besides."""
    judgement = Judgement.of([Judgement(report.findings, report.examined, report.not_judged), more])
    return replace(
        report,
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class DataReport(Report):
    """The result where there were rows and a tokenizer: what the run would learn as well."""

    tokenizer: str
    """The folder that was read."""
    facts: dict[str, str]
    """Short facts on the tokenizer: BOS, EOS, pad, stop tokens, template."""
    rows: int
    examples: int
    rejected: int
    """Rows that could not be rendered."""
    unsupervised: int
    """Examples without a supervised token."""
    formats: dict[str, int]
    """Rows by format."""
    templates: dict[str, int] = field(default_factory=dict)
    """Rows that gave an example, by the name of the chat template that rendered them; not those of plain text."""
    ledger: Ledger
    lengths: Lengths
    views: tuple[TokenView, ...]
    """The first row, and rows of findings that are nearby; `checks.check_data.add_token_views` gives
    more of them."""
    data: dict[str, Any] = field(default_factory=dict)
    """Figures on shares, order, pairs, copies and leaks: plain values; see docs/schema/report-1.json"""
    learned: LearnedTokenCounts | None = None
    """What the run's trainer learns, and what an ideal mask would; None where there are no rows"""


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport(Report):
    """What reached the loss in a real trainer, and what is wrong with it."""

    ledger: Ledger
    """Tokens of the batches by source, without padding"""
    padding: int
    """Places of the batches that hold no text"""
    samples: tuple[Sample, ...]
    """The lines of the batches, each token placed"""
    notes: tuple[str, ...] = ()
    """What could not be looked at, and why"""
    laws: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: what was measured, or why it was not; see `truetune.probe.laws`"""
    canary: tuple[dict[str, Any], ...] = ()
    """path, role, text and seen (supervised, context, cut, lost) of each field of the marked row"""
    loss: dict[str, Any] = field(default_factory=dict)
    """Which function computes the loss; see `truetune.probe.find_function_computing_loss.LossFacts`"""
    do_rollouts_follow: bool = False
    """Is what is learned sampled while the run trains, and judged in a `RolloutReport` that comes later?"""
    writes_text: bool = True
    """Does the trained model write text? A reward model, an embedding model and a reranker give numbers"""

    @property
    def batches(self) -> int:
        """Micro-batches of all processes."""
        return len({(sample.rank, sample.batch) for sample in self.samples})


@dataclass(frozen=True, kw_only=True, repr=False)
class RolloutReport(Report):
    """What the first rollouts of a training by rewards are, and what is wrong with them."""

    rollouts: int
    """Generations that were recorded, of all processes"""
    completions: int
    """Completions of all of them"""
