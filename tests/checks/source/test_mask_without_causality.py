"""Which attention masks without a causal condition are found, and which masks are left alone."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, create_block_mask
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, Trainer
model = AutoModelForCausalLM.from_pretrained("m")
"""
LOOP = """
for batch in DataLoader(data):
    seg = batch["seg"]
    T = seg.shape[1]
{mask}
    loss = model(input_ids=batch["ids"], attention_mask=mask, labels=batch["labels"]).loss
    loss.backward()
"""
COLLATOR = """
def collate(rows):
    seg = torch.stack([torch.tensor(row["seg"]) for row in rows])
    ids = torch.stack([torch.tensor(row["ids"]) for row in rows])
{mask}
    return {{"input_ids": ids, "attention_mask": mask[:, None], "labels": ids.clone()}}
Trainer(model=model, train_dataset=data, data_collator=collate).train()
"""
BLOCKS = """
def collate(rows):
    ids, lengths = rows[0]["ids"], rows[0]["lengths"]
    mask = torch.zeros(len(ids), len(ids), dtype=torch.bool)
    begin = 0
    for n in lengths:
        {write}
        begin += n
    return {{"input_ids": torch.tensor([ids]), "attention_mask": mask[None, None], "labels": torch.tensor([ids])}}
Trainer(model=model, train_dataset=data, data_collator=collate).train()
"""
FLEX = """
for batch in DataLoader(data):
    doc = batch["doc"]
    {mod}
    block_mask = create_block_mask({given}, None, None, 4096, 4096)
    model(batch["ids"], block_mask=block_mask, labels=batch["labels"]).loss.backward()
"""
OWN = """
class GPT(torch.nn.Module):
    def forward(self, ids, seg):
        q = k = v = self.embed(ids)
        same = seg.unsqueeze(1) == seg.unsqueeze(2)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask={mask})
        return self.head(h)
net = GPT()
for batch in DataLoader(data):
    logits = net(batch["ids"], batch["seg"])
    F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["ids"][:, 1:].flatten()).backward()
"""


def in_loop(*lines: str) -> str:
    return HEAD + LOOP.format(mask="\n".join("    " + line for line in lines))


def in_collator(*lines: str) -> str:
    return HEAD + COLLATOR.format(mask="\n".join("    " + line for line in lines))


OPEN = {
    "boolean": in_loop("mask = (seg[:, :, None] == seg[:, None, :])[:, None]"),
    "additive": in_loop(
        "same = seg.unsqueeze(-1).eq(seg.unsqueeze(-2))",
        "mask = torch.zeros(same.shape, dtype=torch.bfloat16)",
        "mask.masked_fill_(~same, torch.finfo(torch.bfloat16).min)",
        "mask = mask.unsqueeze(1)",
    ),
    "where": in_loop(
        "same = torch.eq(seg[:, None, :, None], seg[:, None, None, :])",
        "mask = torch.where(same, 0.0, float('-inf'))",
    ),
    "pads": in_loop(
        "keep = batch['keep']", "mask = (keep[:, None, :] * keep[:, :, None])[:, None]"
    ),
    "with pads": in_loop(
        "same = seg[:, :, None] == seg[:, None, :]",
        "mask = (same & (seg != 0)[:, None, :])[:, None].to(torch.bool)",
    ),
    "collator": in_collator("mask = seg.unsqueeze(1) == seg.unsqueeze(2)"),
    "collator with numpy": in_collator(
        "seg = np.array([row['seg'] for row in rows])",
        "mask = torch.from_numpy(np.equal(seg[:, :, None], seg[:, None, :]))",
    ),
    "blocks": HEAD + BLOCKS.format(write="mask[begin:begin + n, begin:begin + n] = True"),
    "mask_mod": HEAD
    + FLEX.format(
        mod="def same(b, h, q, kv):\n        return doc[b, q] == doc[b, kv]", given="same"
    ),
    "lambda": HEAD + FLEX.format(mod="same = lambda b, h, q, kv: doc[q] == doc[kv]", given="same"),
    "own model": HEAD + OWN.format(mask="same[:, None]"),
}
CLOSED = {
    "encoder beside a decoder": "from transformers import AutoModel, AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\nencoder = AutoModel.from_pretrained('bert-base-uncased')\n"
    "for batch in loader:\n    seg = batch['seg']\n    mask = seg[:, :, None] == seg[:, None, :]\n"
    "    states = encoder(input_ids=batch['ids'], attention_mask=mask[:, None]).last_hidden_state\n"
    "    model(inputs_embeds=states, labels=batch['labels']).loss.backward()\n",
    "tril": in_loop(
        "same = seg[:, :, None] == seg[:, None, :]",
        "mask = (same & torch.ones(T, T, dtype=torch.bool).tril())[:, None]",
    ),
    "filled": in_loop(
        "same = seg[:, :, None] == seg[:, None, :]",
        "mask = torch.zeros(same.shape)",
        "mask.masked_fill_(~same, -1e9)",
        "mask.masked_fill_(torch.triu(torch.ones(T, T), 1).bool(), -1e9)",
        "mask = mask[:, None]",
    ),
    "positions": in_loop(
        "p = torch.arange(T)",
        "mask = ((seg[:, :, None] == seg[:, None, :]) & (p[:, None] >= p[None, :]))[:, None]",
    ),
    "in place": in_loop(
        "mask = seg[:, :, None] == seg[:, None, :]",
        "mask &= torch.tril(torch.ones(T, T, dtype=torch.bool))",
    ),
    "helper of a library": in_loop(
        "from project_masks import make_mask",
        "mask = make_mask(seg[:, :, None] == seg[:, None, :])",
    ),
    "plain": in_loop("mask = batch['attention_mask']"),
    "pads by id": in_loop("mask = batch['ids'] != 0"),
    "collator": in_collator(
        "mask = (seg.unsqueeze(1) == seg.unsqueeze(2)) & torch.tril(torch.ones(9, 9)).bool()"
    ),
    "causal blocks": HEAD
    + BLOCKS.format(
        write="mask[begin:begin + n, begin:begin + n] = torch.tril(torch.ones(n, n)).bool()"
    ),
    "mask_mod": HEAD
    + FLEX.format(
        mod="def same(b, h, q, kv):\n        return (doc[q] == doc[kv]) & (q >= kv)", given="same"
    ),
    "two mask_mods": HEAD
    + FLEX.format(
        mod="causal = lambda b, h, q, kv: q >= kv\n    same = lambda b, h, q, kv: doc[q] == doc[kv]",
        given="and_masks(causal, same)",
    ),
    "own model": HEAD + OWN.format(mask="(same & torch.tril(torch.ones(9, 9)).bool())[:, None]"),
    "encoder": in_loop("mask = (seg[:, :, None] == seg[:, None, :])[:, None]").replace(
        "CausalLM", "MaskedLM"
    ),
    "completed in the loop": in_collator("mask = seg.unsqueeze(1) == seg.unsqueeze(2)")
    + "for batch in loader:\n    m = batch['attention_mask'] & torch.ones(9, 9).tril()\n    model(attention_mask=m)\n",
}


def count_findings(text: str) -> int:
    rule = find_rule("mask-without-causality")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN)
def test_masks_that_let_tokens_see_later_ones_are_found(text: str) -> None:
    assert count_findings(text) == 1


@pytest.mark.parametrize("text", CLOSED.values(), ids=CLOSED)
def test_causal_masks_and_plain_ones_are_left_alone(text: str) -> None:
    assert count_findings(text) == 0
