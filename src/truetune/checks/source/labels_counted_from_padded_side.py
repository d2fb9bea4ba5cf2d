"""Labels are counted off from the end of a row at which the pads are.

## What it does
Follows slices that choose which tokens count in the loss (`labels[:-n] = -100`, `labels[:, -n:] = ids[:, -n:]`, `[-100]
* k + ids[-n:]`) to the ids that they cut, and these to the call that padded them. It fires if `n` is the length of an
answer that was encoded separately and the row is padded on the right: the last `n` positions are pads. It also fires if
`labels[:n] = -100` should mask a prompt in rows that are padded on the left. It is a warning if the tokenizer's padding
side is not set and assumed to be the right. Labels that are cut before the padding, and lengths that include the pads,
are not reported.

## Why it is bad
Only pads count in the loss. It falls to nearly nothing within a few steps, since a pad follows a pad, and the model
answers with nothing or with endless pads. If prompts are masked on the wrong side, the model is trained on the prompts.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer, Trainer

tok = AutoTokenizer.from_pretrained("model", padding_side="right")


def encode(row):
    n = len(tok(row["answer"], add_special_tokens=False)["input_ids"])
    batch = tok(row["question"] + row["answer"], padding="max_length", max_length=768, truncation=True)
    labels = batch["input_ids"].copy()
    labels[:-n] = [-100] * (len(labels) - n)
    return {**batch, "labels": labels}


rows = load_dataset("json", data_files="rows.jsonl", split="train")
Trainer(model="model", train_dataset=rows.map(encode)).train()
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer

tok = AutoTokenizer.from_pretrained("model", padding_side="right")


def encode(row):
    prompt = tok(row["question"], add_special_tokens=False)["input_ids"]
    answer = tok(row["answer"], add_special_tokens=False)["input_ids"]
    labels = prompt + answer
    labels[: len(prompt)] = [-100] * len(prompt)
    return {"input_ids": prompt + answer, "labels": labels}


collator = DataCollatorForSeq2Seq(tok)
rows = load_dataset("json", data_files="rows.jsonl", split="train")
Trainer(model="model", train_dataset=rows.map(encode), data_collator=collator).train()
```

## Fix safety
There is no automatic fix: encode prompt and answer separately, build the labels from the two, and let the collator pad
both. The model has to be trained again.

## References
- transformers, `DataCollatorForSeq2Seq`: it pads labels with -100 on the tokenizer's side
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.labels_counted_from_padded_end import (
    CutLabels,
    labels_cut_at_pads,
)
from truetune.source.parsed_source_file import Module

FIX = (
    "build the labels before the padding (-100 for the prompt, then the answer's ids), and let the collator pad both"
    " (DataCollatorForSeq2Seq pads labels with -100)"
)
SIDE_NOT_SET = (
    "the padding side is not set; most tokenizers pad on the right (print tokenizer.padding_side)"
)


def _slices_of_labels(module: Module) -> Iterator[ast.AST]:
    """Slices of what is called labels or targets."""
    for node in module.nodes(ast.Subscript):
        name = ast.unparse(node.value).lower()
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_slice = any(isinstance(one, ast.Slice) for one in parts)
        if is_slice and ("label" in name or "target" in name or "ids" in name):
            yield node


class LabelsCountedFromPaddedSide(SourceRule):
    code = "SRC263"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("garbage-output", "nothing-is-learned", "odd-metrics", "loss-does-not-fall")
    severity = "error"
    looks_at = CodePlaces("slices of labels or ids", _slices_of_labels)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for cut in labels_cut_at_pads(module):
            yield self.finding(
                describe_learned_tokens(cut),
                FIX,
                severity=None if cut.padding.is_told and cut.padding.is_fixed else "warning",
                evidence=() if cut.padding.is_told else (SIDE_NOT_SET,),
                cases=[case_of_node(module, cut.node), case_of_node(module, cut.padding.node)],
            )


def describe_learned_tokens(cut: CutLabels) -> str:
    """What is learned instead of the answers."""
    length = "to one length" if cut.padding.is_fixed else "to the longest row of the batch"
    if cut.padding.side == "right":
        rows = "" if cut.padding.is_fixed else " in all rows that are shorter"
        return (
            f"labels are counted from the end of rows that are padded on the right {length}: the loss covers"
            f" pads{rows}, and the answers are masked"
        )
    return (
        f"prompts are masked from the beginning of rows that are padded on the left {length}: the mask covers pads,"
        " and the end of the prompt counts in the loss"
    )
