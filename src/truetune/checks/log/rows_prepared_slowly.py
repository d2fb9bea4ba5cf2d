"""Tokenizing the rows before training takes half an hour or more, or every process does it.

## What it does
Reads the progress bars of datasets in the console output (`Map`, `Filter`, `Running tokenizer on dataset`, `Tokenizing
...`): how many rows there are, how many are prepared per second, and by how many workers (num_proc). It warns if all of
them take half an hour or more on one CPU core. It also warns, from ten minutes on, if several processes show the same
bar, so each of them prepares all rows.

## Why it is bad
A fast tokenizer encodes tens of thousands of short rows per second if it gets many at once (`batched=True`), but only
some hundred if it is called for each row. With torchrun, every process runs the script: eight of them share the CPU
cores to do the same work eight times, although one could do it and the others read its cache.

## Example
```yaml
output: |
  Map:   1%|          | 20133/2000000 [00:47<1:17:21, 427 examples/s]
  Map:   4%|4         | 81234/2000000 [03:10<1:14:55, 426 examples/s]
```

## Use instead
```yaml
output: |
  Map (num_proc=8):  10%|#         | 200000/2000000 [00:11<01:38, 18200 examples/s]
  Map (num_proc=8):  50%|#####     | 1000000/2000000 [00:55<00:55, 18200 examples/s]
```

## Fix safety
A function for `batched=True` gets lists and returns lists. The rows come out the same.

## References
- huggingface/datasets documentation, "Process" (batched, num_proc); transformers, main_process_first
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import OutputRule
from truetune.logs.console.row_preparation_time_from_bars import RowPreparation

MINUTE = 60.0
"""Seconds"""
LONG_ALONE = 30.0
"""Minutes on one core. Chosen, not measured: less is little beside a training of hours"""
LONG_IN_EACH = 10.0
"""Minutes, where each process does the same work. Chosen, not measured: the GPUs wait for it, and one edit ends it"""
FACTORY = "Running tokenizer"
"""What LLaMA-Factory and the examples of transformers write before this bar"""


class RowsPreparedSlowly(OutputRule):
    code = "LOG125"
    fault = Fault.TRAINING_SLOWER_THAN_NEEDED
    symptoms = ("slow-training",)
    severity = "warning"
    stability = "preview"

    def measurement_if_clean(self) -> str:
        """How many rows were prepared in which time; empty where the output does not say it."""
        prepared = self._row_preparation
        return (
            f"{prepared.rows:,} rows prepared in {_format_duration(prepared)}"
            if prepared.rows
            else ""
        )

    @property
    def _row_preparation(self) -> RowPreparation:
        """What the output says of the preparation of rows; empty without an output."""
        output = self.subject.output
        return output.prepared if output is not None else RowPreparation()

    def findings(self) -> Iterator[Finding]:
        output, prepared = self.subject.output, self._row_preparation
        minutes = prepared.estimated_total_seconds / MINUTE
        is_slow = prepared.workers == 1 and minutes >= LONG_ALONE
        is_repeated = prepared.by_each_process and minutes >= LONG_IN_EACH
        if output is None or not (is_slow or is_repeated):
            return
        pace = f"{prepared.rows:,} rows take {_format_duration(prepared)} at {prepared.rows_per_second:,.0f} per second"
        who = (
            "each process prepares all rows"
            if is_repeated
            else "rows are prepared on only one CPU core"
        )
        yield self.finding(
            f"{who} before the training: {pace}",
            _remedy(prepared, is_repeated),
            cases=(Case(prepared.text, file=output.file, line=prepared.line),),
        )


def _format_duration(prepared: RowPreparation) -> str:
    """How long the preparation took, in words: `78 min`, or `3.2 h`"""
    minutes = prepared.estimated_total_seconds / MINUTE
    return f"{minutes:.0f} min" if minutes < 2 * MINUTE else f"{minutes / MINUTE:.1f} h"


def _remedy(prepared: RowPreparation, is_repeated: bool) -> str:
    """The remedy: what prepares the rows faster."""
    if is_repeated:
        return (
            "prepare them once before the launch (save_to_disk, then load_from_disk), or let one process do it and the"
            " others read its cache: with training_args.main_process_first(): rows = rows.map(...)"
        )
    if prepared.what.startswith(FACTORY):
        return (
            "set preprocessing_num_workers: 16, overwrite_cache: false, and tokenized_path: FOLDER, which keeps the"
            " prepared rows"
        )
    return (
        "use rows.map(function_of_a_batch, batched=True, num_proc=8) with a fast tokenizer (tokenizer.is_fast is True);"
        " save_to_disk keeps the result"
    )
