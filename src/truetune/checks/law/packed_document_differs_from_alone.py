"""A packed document gives other results than the same document by itself.

## What it does
Compares the logits of the documents in a packed row, in the real batch with all its keys, with those of each document
by itself. It fires if they differ by more than rounding explains although no document sees another (that is
`packed-documents-see-each-other`).

## Why it is bad
The model trains at positions or with a mask that it never meets in serving. A mask that separates documents, without
position ids that restart, does this to models with absolute positions.

## Example

```python
def pack(rows):
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    document = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    mask = (document[:, None] == document[None]).tril()[None, None]
    ids, labels = (torch.tensor([sum((row[key] for row in rows), [])]) for key in ("input_ids", "labels"))
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}

gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), pack, encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
def pack(rows):
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    document = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    mask = (document[:, None] == document[None]).tril()[None, None]
    ids, labels = (torch.tensor([sum((row[key] for row in rows), [])]) for key in ("input_ids", "labels"))
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    return {"input_ids": ids, "labels": labels, "attention_mask": mask, "position_ids": positions}

gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4))
run = transformers.Trainer(gpt2, arguments(), pack, encoded(rows), processing_class=tokenizer)
```

## Fix safety
There is no automatic fix. With `position_ids` that restart, a packed document gives the same results as in serving.

## References

- huggingface/trl#3067, huggingface/nanoVLM#204, hiyouga/LLaMA-Factory#4224
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import LawRule


class PackedDocumentDiffersFromAlone(LawRule):
    code = "LAW004"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    severity = "error"
    since = "0.1.0"
    law = "packed-alone"

    def findings_if_broken(
        self, value: float, tolerance: float, evidence: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding that a packed document is computed otherwise than the same document alone."""
        isolation = self.subject.laws.get("packing-isolation", {})
        # Documents that see each other differ from those alone as well:
        # packed-documents-see-each-other says why.
        if not isolation.get("value", 0.0) <= isolation.get("tolerance", 0.0):
            return
        yield self.finding(
            f"in a packed row, a document's logits differ from those it has by itself by {value:.2g} times"
            f" the largest logit (rounding explains up to {tolerance:.0e})",
            "add position_ids to the batch that start at 0 in each document",
            evidence=[
                f"{name} of {evidence['documents']}: {difference:.2g}"
                for name, difference in evidence["by document"].items()
            ],
        )
