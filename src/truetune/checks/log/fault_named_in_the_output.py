"""The console output reports a fault, but the run continued.

## What it does
Looks for lines that begin with a warning that is known to report a fault (`Some weights of ... are newly initialized`,
`None of the inputs have requires_grad=True`). Each warning is reported once, with its count. It also reports, as info,
tracebacks after which the run continued. A line that only contains such words, as a row of training data may, is not
reported. Where the warnings are of single rows (`Could not find response key ... in the following instance`), they are
counted against the rows of the run: up to 2 % are info, since a few long rows are cut in most runs.

## Why it is bad
Such warnings are hidden among hundreds of harmless lines, and the run ends normally. A model whose head was initialized
at random, or whose lower layers got no gradient, is saved like any other.

## Example
```yaml
output: |
  Some weights of Llama were not initialized from the model checkpoint at m and are newly initialized: ['lm_head']
  {'loss': 9.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Use instead
```yaml
output: |
  question: why does it print "Some weights of LlamaForCausalLM are newly initialized"?
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Fix safety
The help is a command that only reads, or an edit whose effect the next run shows.

## References
- transformers/utils/loading_report.py, torch/utils/checkpoint.py; of each message its own
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.log.evidence.is_exception_from_parsing_answer import failed_to_parse_an_answer
from truetune.checks.log.explain_log_messages_and_progress import explain_message
from truetune.checks.log.grad_norm_zero import CHECKPOINTED
from truetune.checks.rule import OutputRule
from truetune.logs.console.read_console_output import ConsoleOutput, Notice
from truetune.logs.robust_statistics import is_falling
from truetune.logs.run_log import RunLog

LEARNS_ALL_THE_SAME = (
    "the gradient norm is above 0 and the loss falls: the message may come from frozen layers alone (a vision tower),"
    " or from an evaluation"
)
MAX_TEXT = 200
"""Characters of a printed line that a message repeats: about two lines of a terminal. Chosen by hand"""
SKIPPED = "fp16-step-skipped"
UNFOUND_MARKER = re.compile(r"Could not find (?:response|instruction) key")
"""A warning that TRL's collator prints once for each row that it leaves out"""
FEW_ROWS = 0.02
"""Share of the rows below which nothing is lost: the answers of a few long rows are cut in most runs. Chosen, not
measured"""


class FaultNamedInTheOutput(OutputRule):
    code = "LOG032"
    fault = Fault.RUN_FAILED
    severity = "error"

    def measurement_if_clean(self) -> str:
        """The number of lines that no known message begins; empty without an output."""
        output = self.subject.output
        return (
            f"none of the known messages begins one of the {output.lines:,} lines" if output else ""
        )

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None:
            return
        for notice in output.notices:
            known = notice.message
            if notice.count < known.least_share_of_steps * self.subject.done_steps:
                continue  # normal at some of the steps
            if not _is_said_by_another_rule(output, notice):
                yield self._finding_on_message(output, notice)
        for failure in output.survived:
            if failed_to_parse_an_answer(self.subject, failure):
                continue  # answers-fail-to-parse says so
            text = failure.raised.text.partition("\n")[0][:MAX_TEXT]
            frame = failure.raised.last_user_frame
            yield self.finding(
                f"an exception was printed, but the run continued ({text})",
                "check what is missing because of it, such as a checkpoint, an evaluation or some rows: read the"
                " traceback at this line of the log",
                severity="info",
                evidence=((f"raised from {frame}",) if frame else ()),
                cases=(Case(text, file=output.file, line=failure.raised.line),),
            )

    def _finding_on_message(self, output: ConsoleOutput, notice: Notice) -> Finding:
        """The finding on a message that is known; a note where it is about few rows, or where the log refutes it."""
        known = notice.message
        rows = _rows_that_warnings_are_about(output, notice)
        counted = f" ({notice.count:,} of {rows:,} rows are ignored in the loss)" if rows else ""
        is_rare = rows > 0 and notice.count <= max(1, FEW_ROWS * rows)
        is_harmless = known.name == CHECKPOINTED and _is_something_learned(self.subject)
        evidence = explain_message(known)
        return self.finding(
            f"the output says: {known.title}{counted}",
            known.advice.replace("{gpu}", "SIZE"),
            severity="info" if is_rare or is_harmless else known.severity,
            evidence=(*evidence, LEARNS_ALL_THE_SAME) if is_harmless else tuple(evidence),
            cases=(Case(notice.text, file=output.file, line=notice.line),),
            count=notice.count,
        )


def _is_something_learned(log: RunLog) -> bool:
    """Is each gradient norm above 0, while the loss comes down?"""
    norm = log.curve("grad_norm").finite()
    is_above_zero = norm.value.size > 0 and bool((norm.value > 0).all())
    return is_above_zero and is_falling(log.curve("loss").finite())


def _is_said_by_another_rule(output: ConsoleOutput, notice: Notice) -> bool:
    """Does a rule that knows the cause report this message?"""
    known = notice.message
    if output.failure is not None and output.failure.message is known:
        return True  # it says what the exception means, which run-ended-in-an-exception shows
    skips = output.skips
    # fixed-loss-scale-skips-steps or loss-scale-collapses
    return known.name == SKIPPED and (skips.is_loss_scale_fixed or skips.is_loss_scale_at_its_least)


def _rows_that_warnings_are_about(output: ConsoleOutput, notice: Notice) -> int:
    """How many rows the run has, where each warning is about one of them; 0 where that is not known, or they are not.

    Python prints one text once, so that no row is counted again in a later epoch.
    """
    if UNFOUND_MARKER.search(notice.text) is None:
        return 0
    settings = output.settings
    rows = settings.examples or settings.rows_mapped or settings.rows_of_file or 0
    return rows if rows >= notice.count else 0
