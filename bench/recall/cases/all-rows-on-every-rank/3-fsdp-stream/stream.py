import torch
from datasets import load_dataset
from torch.utils.data import IterableDataset


def open_corpus(name, config, seed):
    return load_dataset(name, config, split="train", streaming=True).shuffle(seed=seed, buffer_size=10_000)


class PackedStream(IterableDataset):
    """Joins documents with EOS between and cuts blocks of the same length."""

    def __init__(self, source, tokenizer, block):
        self.source, self.tok, self.block = source, tokenizer, block

    def __iter__(self):
        buf = []
        for doc in self.source:
            buf += self.tok(doc["text"], add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
            while len(buf) >= self.block:
                ids = torch.tensor(buf[: self.block])
                buf = buf[self.block :]
                yield {"input_ids": ids, "labels": ids.clone()}
