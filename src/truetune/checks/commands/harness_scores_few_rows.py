"""An evaluation with saved results scores only a few rows of each task.

## What it does
Finds lm_eval and lighteval commands that write results (`--output_path`, `--log_samples`, `--output-dir`) and limit the
rows of each task to at most 200 or less than half of them (`--limit 50`, `--limit 0.1`, `--max-samples 50`).

## Why it is bad
The limit is an option for trying a command. The scores of 50 rows move by 14 points either way by chance (two standard
errors of a share of one half), and the rows are the first ones, often of one subject. The table of results looks like
any other, and is compared with published scores of all rows.

## Example
```bash
lm_eval --model vllm --model_args pretrained=out/sft --tasks gsm8k,mmlu --limit 50 --output_path results/sft
```

## Use instead
```bash
lm_eval --model vllm --model_args pretrained=out/sft --tasks gsm8k,mmlu --output_path results/sft
```

## Fix safety
The evaluation takes longer. Evaluate the base again with the same rows.

## References
- lm-evaluation-harness, docs/interface.md: "`--limit`: ... only use this to test; metrics should not be computed using
  it"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

# At 200 rows the standard error of a share of one half is 3.5 points, more than most trainings gain.
MAX_ROWS_OF_TRIAL = 200
MAX_SHARE_OF_TRIAL = 0.5
LIMITS = ("--limit", "-L", "--max-samples", "--max_samples")
RESULTS = (
    "--output_path",
    "-o",
    "--log_samples",
    "-s",
    "--output-dir",
    "--save-details",
    "--wandb_args",
)
LIGHTEVAL = (("lighteval", "accelerate"), ("lighteval", "vllm"), ("lighteval", "endpoint"))


class LimitedEvaluation(NamedTuple):
    """A command that evaluates some rows of its tasks."""

    command: ShellCommand
    option: str
    value: str


class HarnessScoresFewRows(CommandRule):
    code = "CMD241"
    fault = Fault.SWITCH_FOR_TESTING_LEFT_ON
    symptoms = ("odd-metrics",)
    severity = "warning"
    what = "evaluations that are limited to some rows"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LimitedEvaluation]:
        """The limits of the evaluations that save their results."""
        runs = [(run.command, run.options) for run in find_harness_runs(file)]
        for command in file.commands:
            words_of_options = (command.words_following(*words) for words in LIGHTEVAL)
            runs += [(command, options) for options in words_of_options if options is not None]
        for command, options in runs:
            is_saved = last_option(options, *RESULTS) is not None
            option = next((one for one in LIMITS if last_option(options, one) is not None), None)
            if is_saved and option is not None:
                yield LimitedEvaluation(command, option, last_option(options, option) or "")

    def findings(self) -> Iterator[Finding]:
        for limited in self.examined_places(self.subject):
            scored = _rows_in_words(limited.value)
            if scored is None:
                continue
            yield self.finding(
                f"{limited.option} {limited.value} scores only {scored} of each task, and the results are saved: they"
                " can't be compared with scores of all rows",
                f"remove {limited.option}, unless this is a test run",
                cases=[self.case_of_command(limited.command, f"{limited.option} {limited.value}")],
            )


def _rows_in_words(value: str) -> str | None:
    """What a limit leaves, in words; None where that is most rows, or not known."""
    try:
        number = float(value)
    except ValueError:
        return None
    # Below 1 it is a share of the rows.
    if 0 < number < 1:
        return f"{number:.0%}" if number < MAX_SHARE_OF_TRIAL else None
    return f"the first {number:,.0f} rows" if 1 <= number <= MAX_ROWS_OF_TRIAL else None
