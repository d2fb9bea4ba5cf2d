"""A DataLoader pads rows of very uneven length to the longest row of each batch.

## What it does
Inspects scripts that train with a hand-written loop (`backward`, Accelerate, Fabric, Lightning's `fit`) over a shuffled
DataLoader whose collator pads. If the rows lie next to the script, it computes from their lengths how long the longest
row of a random batch is on average, and how much of the batch is padding. It is info above 60 % and a warning from 75 %
on, if a batch has 8,192 tokens or more. Lengths are estimated from characters, and limited where the script truncates
them. Not reported: rows that are packed, sorted or grouped by length, and loaders with a custom sampler.

## Why it is bad
If one row of ten is fifty times as long as the others, nearly every batch of sixteen contains such a row, and all
others are padded to its length. Time and memory of a step follow the padded tokens, from which nothing is learned.

## Example
```python
# rows.jsonl: {"rows": 200, "words": 20, "long": 10, "long_words": 3000}
import json
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rows = [json.loads(line)["text"] for line in open("rows.jsonl")]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

def collate(texts):
    batch = tok(texts, padding=True, truncation=True, max_length=8192, return_tensors="pt")
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch

for batch in DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collate):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
# rows.jsonl: {"rows": 200, "words": 20, "long": 10, "long_words": 3000}
import json
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_pt_utils import LengthGroupedSampler

tok = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rows = [json.loads(line)["text"] for line in open("rows.jsonl")]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

def collate(texts):
    batch = tok(texts, padding=True, truncation=True, max_length=8192, return_tensors="pt")
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return batch

sampler = LengthGroupedSampler(16, lengths=[len(text) for text in rows])
for batch in DataLoader(rows, batch_size=16, sampler=sampler, collate_fn=collate):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Batches grouped by length are less random, and loss curves show waves. The logged speed varies, since a batch of short
rows takes much less time.

## References
- transformers, `trainer_pt_utils.LengthGroupedSampler`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.config.evidence.script_token_ids_by_stand_in_tokenizer import (
    lengths_of_script_rows,
)
from truetune.checks.estimate_padding_share_of_batches import (
    CHARACTERS_PER_TOKEN,
    LARGE_SHARE,
    advise_on_few_long_rows,
    describe_padding,
    estimate_padded_batches,
    estimate_tokens,
)
from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.length_that_rows_are_cut_or_padded_to import (
    longest_row_after_cut_or_pad,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Instance, Value

LOADERS = ("torch.utils.data*.DataLoader",)
TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*")
PADS = re.compile(
    r"pad_sequence|padding\s*=\s*(?:True|[\"']longest)|\.pad\(|F\.pad|DataCollator(?:WithPadding|ForSeq2Seq|ForLanguage)"
    r"|\]\s*\*\s*\("
)
"""What pads to the longest row of a batch"""
JOINS_ROWS = re.compile(
    r"Flattening|cu_seqlens|[Bb]ucket|LengthGrouped|group_by_length|batch_sampler|\bpack(?:ed|ing|_)|"
    r"BatchSampler|[Ss]ortish|\.sort\(|sorted\(|padding\s*=\s*[\"']max_length|pad_to_max_length"
)
"""What joins rows, sorts them, or pads them to one length"""
MAX_DEPTH = 6
"""Lists and mappings in each other whose texts are counted. Chosen, not measured: parts of a message are three deep"""
CHOOSES_BY_LENGTH = re.compile(r"\.filter\(|\blen\([^()]*\)\s*(?:<=?|>=?)")


class _PaddingLoader(NamedTuple):
    """A loader that pads what it gives to a training."""

    call: CallEvent
    batch: int


class LoaderPadsUnevenRows(SourceRule):
    code = "SRC276"
    fault = Fault.BATCHES_MOSTLY_PADDING
    symptoms = ("slow-training", "out-of-memory")
    severity = "warning"
    looks_at = places_of_calls("data loaders that are made", *LOADERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        text = "\n".join(part.text for part in module.self_and_files_run_together)
        if not PADS.search(text) or JOINS_ROWS.search(text):
            return
        seen: set[object] = set()
        for trace in traces_of_scripts_that_reach_file(module):
            if any(trace.calls(*TRAINERS)) or not _trains_in_a_loop(trace):
                continue
            for loader in _shuffled_batch_loaders(module, trace):
                if loader.call.node in seen:
                    continue
                seen.add(loader.call.node)
                yield from self._findings_on_loader(loader)

    def _findings_on_loader(self, loader: _PaddingLoader) -> Iterator[Finding]:
        """The finding on what one loader pads."""
        module = self.subject
        lengths = _estimated_row_lengths_in_tokens(module, loader.call)
        padded = (
            estimate_padded_batches(lengths, loader.batch, longest_row_after_cut_or_pad(module))
            if lengths
            else None
        )
        if padded is None or not padded.is_waste:
            return
        yield self.finding(
            describe_padding(padded),
            "put rows of similar length into a batch: replace shuffle=True by"
            f" sampler=LengthGroupedSampler({loader.batch}, lengths=[len(row) for row in rows]) from"
            " transformers.trainer_pt_utils; or pack rows (DataCollatorWithFlattening)"
            + advise_on_few_long_rows(padded),
            severity="warning" if padded.share >= LARGE_SHARE else "info",
            evidence=[
                f"estimated from the lengths of {padded.rows:,} rows with {CHARACTERS_PER_TOKEN} characters per"
                " token; the"
                " collator pads each batch to its longest row"
            ],
            cases=[case_of_node(module, loader.call.node)],
        )


def _trains_in_a_loop(trace: Trace) -> bool:
    """Does a loop of the script, or Lightning, train a model?"""
    return any(trace.methods("backward", "fit"))


def _shuffled_batch_loaders(module: Module, trace: Trace) -> Iterator[_PaddingLoader]:
    """The loaders of a run that draw several rows at random."""
    for call in trace.calls(*LOADERS):
        shuffle, batch = call.argument(2, "shuffle"), call.argument(1, "batch_size")
        if call.home.path != module.path or call.is_open or batch is None:
            continue
        if shuffle is None or constant_of(shuffle) is not True or call.argument(3, "sampler"):
            continue
        size = constant_of(batch)
        if type(size) is int and size > 1:
            yield _PaddingLoader(call, size)


def _estimated_row_lengths_in_tokens(module: Module, loader: CallEvent) -> list[int] | None:
    """About how many tokens each row of a loader has; None where that is not known."""
    stored = lengths_of_script_rows(module.path, CHARACTERS_PER_TOKEN)
    if stored is not None:
        return list(stored)
    # Rows that are left out by their length are in the file, and not in the batches.
    if not loader.args or CHOOSES_BY_LENGTH.search(module.text):
        return None
    file_rows = _rows_of_data_set(module, loader.args[0])
    if file_rows is None:
        return None
    return estimate_tokens(_count_characters(list(row.values())) for row in file_rows.rows)


def _rows_of_data_set(module: Module, data_set: Value) -> FileRows | None:
    """The rows of the file that a data set reads, also where an object of a class of one's own keeps it."""
    kept = list(data_set.attributes.values()) if isinstance(data_set, Instance) else [data_set]
    rows_of_values = [
        rows for one in kept if (rows := local_rows_of_value(module, one)) is not None
    ]
    return rows_of_values[0] if len({one.source for one in rows_of_values}) == 1 else None


def _count_characters(value: object, depth: int = 0) -> int:
    """The characters of all texts in a value; the roles of turns are counted too, and add little."""
    if isinstance(value, str):
        return len(value)
    if depth > MAX_DEPTH:
        return 0
    if isinstance(value, dict):
        return sum(_count_characters(one, depth + 1) for one in value.values())
    if isinstance(value, list):
        return sum(_count_characters(one, depth + 1) for one in value)
    return 0
