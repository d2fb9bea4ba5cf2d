"""The evaluation harness generates the answers of a benchmark one row at a time.

## What it does
Reads lm_eval commands with a transformers backend (`--model hf`, the default, or `hf-multimodal`) and no
`--batch_size`, or a batch size of 1. The harness then runs one row at a time. It is a warning if a task generates
answers (gsm8k, ifeval, humaneval), and info if it only compares given answers. It does not fire for vLLM, SGLang and
servers, which batch by themselves, for a `--limit` of at most a hundred rows, or for results files.

## Why it is bad
A GPU generates 16 answers in nearly the time of one. GSM8K has 1,319 rows with a few hundred tokens of reasoning each:
one by one they take hours on a small model, in batches half an hour.

## Example
```bash
lm_eval --model hf --model_args pretrained=out/merged,dtype=bfloat16 --tasks gsm8k
```

## Use instead
```bash
lm_eval --model hf --model_args pretrained=out/merged,dtype=bfloat16 --tasks gsm8k --batch_size auto
```

## Fix safety
Scores with batches differ from single rows by rounding, and by padding if the model has a wrong attention mask.
`--model vllm` is even faster.

## References
- EleutherAI/lm-evaluation-harness, docs/interface.md (`--batch_size`, 1 where it is not given)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.commands.evidence.generative_tasks import GENERATIVE_TASKS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_evaluation_harness_commands import HarnessRun, find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, last_option, parse_digits

BY_TRANSFORMERS = ("hf", "huggingface", "hf-auto", "hf-multimodal", "")
"""Backends that make no batches by themselves; `hf` is the default"""
FEW_ROWS = 100
"""Rows of `--limit`. Chosen, not measured: so few take minutes anyhow"""
RESULTS_SUFFIX = ".json"
"""Of files of results, which are read as the command that made them"""


class HarnessAsksRowByRow(CommandRule):
    code = "CMD099"
    fault = Fault.REQUESTS_NOT_BATCHED
    symptoms = ("slow-generation",)
    severity = "warning"
    stability = "preview"
    what = "commands that start lm_eval with transformers"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[HarnessRun]:
        """The places that the rule looks at: the commands that start lm_eval with transformers."""
        if file.path.endswith(RESULTS_SUFFIX):
            return
        for run in find_harness_runs(file):
            if (last_option(run.options, "--model", "-m") or "") in BY_TRANSFORMERS:
                yield run

    def findings(self) -> Iterator[Finding]:
        for run in self.examined_places(self.subject):
            batch_size_option = last_option(run.options, "--batch_size", "-b")
            if (
                batch_size_option not in (None, "1")
                or _is_limited_to_few_rows(run)
                or _may_set_batch_elsewhere(run)
            ):
                continue
            tasks = last_option(run.options, "--tasks", "-t") or ""
            why = (
                "--batch_size is 1"
                if batch_size_option
                else "--batch_size is not set, and its default is 1"
            )
            does = "generates" if GENERATIVE_TASKS.search(tasks) else "computes"
            yield self.finding(
                f"lm_eval {does} the answers of {tasks[:80]} one row at a time: {why}",
                "add --batch_size auto (or 16), or use --model vllm, which batches by itself",
                severity="warning" if GENERATIVE_TASKS.search(tasks) else "info",
                cases=[self.case_of_command(run.command, run.command.text[:300])],
            )


def _is_limited_to_few_rows(run: HarnessRun) -> bool:
    """Is the run limited to few rows?"""
    given = last_option(run.options, "--limit", "-L") or ""
    if not given.replace(".", "", 1).isdecimal():
        # A variable of the shell may be any number.
        return bool(given)
    # A number with a point is a share of the rows.
    return "." not in given and (parse_digits(given) or 0) <= FEW_ROWS


def _may_set_batch_elsewhere(run: HarnessRun) -> bool:
    """May a file of settings, or the model's own arguments, say the size of batches?"""
    return (
        last_option(run.options, "--config", "-C") is not None
        or "batch_size" in run.model_with_arguments_as_written
    )
