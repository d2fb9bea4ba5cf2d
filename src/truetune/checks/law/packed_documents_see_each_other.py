"""In a packed row, one document attends to another.

## What it does
Takes a packed row of the real batches, with every key from the collator (position_ids, cu_seq_lens, seq_idx, 4-D
masks). It changes the tokens of the first document, then of the last, and compares the logits of all others in the
model as it trains. If they change although the batch separates the documents, it is an error: the model ignores the
separation. If nothing in the batch separates them, `packed-without-boundaries` reports it; if that rule does not
recognise the packed rows, this one warns, or reports as info if the data may be plain text.

## Why it is bad
Answers are learned with the text of unrelated rows in view, which is never there in serving. The loss is lower than
without the fault, so it looks like progress.

## Example

```python
def pack(rows):
    ids, labels = (torch.tensor([sum((row[key] for row in rows), [])]) for key in ("input_ids", "labels"))
    positions = torch.cat([torch.arange(len(row["input_ids"])) for row in rows])[None]
    return {"input_ids": ids, "labels": labels, "position_ids": positions, "attention_mask": torch.ones_like(ids)}

run = transformers.Trainer(model, arguments(), pack, encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
def pack(rows):
    ids, labels = (torch.tensor([sum((row[key] for row in rows), [])]) for key in ("input_ids", "labels"))
    positions = torch.cat([torch.arange(len(row["input_ids"])) for row in rows])[None]
    return {"input_ids": ids, "labels": labels, "position_ids": positions}

run = transformers.Trainer(model, arguments(), pack, encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. With separated documents the loss is a little higher, and means what it says.

## References

- huggingface/trl#805, huggingface/trl#1230, huggingface/trl#3526, huggingface/nanoVLM#204,
  huggingface/transformers#25452, hiyouga/LLaMA-Factory#2289
- layers that carry a state: huggingface/transformers#46093, unslothai/unsloth#7249
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule
from truetune.settings.run_spec import Severity

CHAT_COLUMNS = ("messages", "conversations", "prompt", "completion", "instruction")
"""Columns of rows that are chats or tasks, not plain text"""


class PackedDocumentsSeeEachOther(LawRule):
    code = "LAW003"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    law = "packing-isolation"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that in a packed row, one document attends to another."""
        borders = evidence["separated by"]
        if not borders and any(
            int(sample.documents.max(initial=0)) for sample in self.subject.samples
        ):
            # The batches of this run hold such lines, and nothing parts them:
            # packed-without-boundaries says so.
            return
        columns = (self.subject.facts["data"]["given"] or {}).get("columns") or ()
        chats = any(name in columns for name in CHAT_COLUMNS)
        # Joined plain text is how most models were pretrained; of chats it is likely a fault; and
        # where borders are given, somebody wanted them and the model does not heed them.
        severity: Severity = "info"
        if borders:
            severity = "error"
        elif chats:
            severity = "warning"
        yield self.finding(
            f"changing one document of a packed row changes the logits of others by {value:.2g} times"
            f" the largest logit (rounding explains up to {tolerance:.0e})",
            "pack with position_ids that restart in each document and without an attention mask"
            " of ones (TRL: packing_strategy: bfd), and use an attention implementation that follows"
            " them (flash_attention_2). No attention helps where layers carry a state from token to token"
            " (Mamba, linear attention, short convolutions): these need seq_idx and cu_seq_lens in the"
            " batch and kernels that follow them (causal-conv1d, mamba-ssm, flash-linear-attention), or"
            " training without packing",
            severity=severity,
            evidence=[
                *(
                    f"the {name} document changed: {difference:.2g}"
                    for name, difference in evidence["by changed document"].items()
                ),
                f"{evidence['documents']} documents, separated by "
                + (", ".join(borders) or "nothing in the batch"),
            ],
        )
