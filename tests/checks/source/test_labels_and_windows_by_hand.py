"""Labels that `pad_sequence` fills with 0, and targets of an own decoder that are its input."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

TAGGED = """
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForTokenClassification
model = AutoModelForTokenClassification.from_pretrained("model", num_labels=9)
def collate(rows):
    ids = pad_sequence([torch.tensor(row["ids"]) for row in rows], batch_first=True)
    tags = pad_sequence([torch.tensor(row["tags"]) for row in rows], batch_first=True{value})
    return {returned}
for batch in DataLoader(rows, batch_size=8, collate_fn=collate):
    loss = {loss}
    loss.backward()
"""
DICTIONARY = ('{"input_ids": ids, "labels": tags}', "model(**batch).loss")
TUPLE = ("ids, tags", "model(input_ids=batch[0], labels=batch[1].cuda()).loss")
DECODER = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.layer = nn.TransformerEncoderLayer(64, 8, batch_first=True)
        self.head = nn.Linear(64, 1000)
    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.layer(self.embed(ids), src_mask=mask))
model = Model()
for step in range(1000):
    i = torch.randint(len(data) - 257, (16,))
    x = torch.stack([data[n : n + 256] for n in i])
    y = torch.stack([data[{start} : {stop}] for n in i])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
"""


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize(
    ("form", "value", "findings"),
    [
        (DICTIONARY, "", 1),
        (DICTIONARY, ", padding_value=0", 1),
        (DICTIONARY, ", padding_value=-100", 0),
        (DICTIONARY, ", padding_value=PAD", 0),
        (TUPLE, "", 1),
    ],
)
def test_labels_that_are_filled_with_zero_are_reported(
    form: tuple[str, str], value: str, findings: int
) -> None:
    returned, loss = form
    text = TAGGED.format(value=value, returned=returned, loss=loss)
    assert count("labels-padded-with-pad-token", text) == findings


def test_labels_that_are_masked_later_are_fine() -> None:
    returned, loss = DICTIONARY
    text = TAGGED.format(value="", returned=returned, loss=loss)
    text = text.replace("    return {", "    tags[ids == 0] = -100\n    return {")
    assert count("labels-padded-with-pad-token", text) == 0


@pytest.mark.parametrize(
    ("start", "stop", "findings"), [("n", "n + 256", 1), ("n + 1", "n + 257", 0)]
)
def test_targets_of_an_own_decoder_are_compared_with_its_input(
    start: str, stop: str, findings: int
) -> None:
    assert count("own-loss-without-shift", DECODER.format(start=start, stop=stop)) == findings
