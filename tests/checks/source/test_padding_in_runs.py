"""Batches that are padded on the right and generated from (SRC042), as a symbolic run of the script sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

LOADS = """
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

model = AutoModelForCausalLM.from_pretrained("out/tuned").to("cuda")
"""
PIPELINE = (
    LOADS
    + """
OPTIONS = {"padding_side": "right"}
tok = AutoTokenizer.from_pretrained("out/tuned", **OPTIONS)
pipe = pipeline("text-generation", model=model, tokenizer=tok)
SET
answers = pipe(prompts, BATCH)
"""
)
COLLATED = (
    LOADS
    + """
from accelerate import Accelerator

def collate(rows):
    ids = [torch.tensor(row["ids"]) for row in rows]
    return {"input_ids": pad_sequence(ids, batch_first=True, padding_value=0 SIDE)}

loader = Accelerator().prepare(DataLoader(rows, batch_size=SIZE, collate_fn=collate))
for batch in loader:
    batch = {key: value.to("cuda") for key, value in batch.items()}
    out = model.generate(**batch, max_new_tokens=9)
    save(out)
"""
)
HELPER = (
    LOADS
    + """
class Asker:
    def __init__(self, side):
        self.tok = AutoTokenizer.from_pretrained("out/tuned")
        setattr(self.tok, "truncation_side", "left")
        self.tok.padding_side = side

    def encode(self, rows):
        texts = [f"Q: {row['q']}" for row in rows]
        return self.tok(texts, padding=True, return_tensors="pt").to("cuda")

    def ask(self, rows):
        batch = self.encode(rows)
        CHANGE
        return model.generate(input_ids=batch["input_ids"], max_new_tokens=9)

save(Asker("right").ask(rows))
"""
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PIPELINE.replace("SET", "").replace("BATCH", "batch_size=8"), True),
        (PIPELINE.replace("SET", "").replace("BATCH", "batch_size=1"), False),
        (PIPELINE.replace("SET", "tok.padding_side = 'left'").replace("BATCH", "batch_size=8"), False),
        (PIPELINE.replace("SET", "pipe.tokenizer.padding_side = 'left'").replace("BATCH", "batch_size=8"), False),
        (COLLATED.replace("SIZE", "8").replace("SIDE", ""), True),
        (COLLATED.replace("SIZE", "8").replace("SIDE", ", padding_side='right'"), True),
        (COLLATED.replace("SIZE", "8").replace("SIDE", ", padding_side='left'"), False),
        (COLLATED.replace("SIZE", "1").replace("SIDE", ""), False),
        (COLLATED.replace("SIZE", "8").replace("SIDE", "").replace("CausalLM", "Seq2SeqLM"), False),
        (HELPER.replace("CHANGE", ""), True),
        (HELPER.replace("CHANGE", "").replace('"right"', '"left"'), False),
        (HELPER.replace("CHANGE", "batch = turned(batch)").replace('"right"', '"left"'), False),
    ],
)  # fmt: skip
def test_batch_padded_on_the_right(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC042") == ["SRC042e"] * found
