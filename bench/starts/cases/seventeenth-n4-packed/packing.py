import torch
from torch.utils.data import Dataset


def greedy_pack(examples, seq_len):
    """examples: list of (ids, labels). Longest first, first bin that has room."""
    bins = []
    for ids, labels in sorted(examples, key=lambda e: -len(e[0])):
        for b in bins:
            if b["n"] + len(ids) <= seq_len:
                b["items"].append((ids, labels))
                b["n"] += len(ids)
                break
        else:
            bins.append({"n": len(ids), "items": [(ids, labels)]})
    return [b["items"] for b in bins]


class PackedDataset(Dataset):
    def __init__(self, examples, seq_len, pad_id):
        self.seq_len, self.pad_id = seq_len, pad_id
        self.bins = greedy_pack(examples, seq_len)

    def __len__(self):
        return len(self.bins)

    def __getitem__(self, i):
        ids, labels, pos, seg = [], [], [], []
        for k, (x, y) in enumerate(self.bins[i], start=1):
            ids += x
            labels += [-100] + y[1:]
            pos += range(len(x))
            seg += [k] * len(x)
        gap = self.seq_len - len(ids)
        ids += [self.pad_id] * gap
        labels += [-100] * gap
        pos += [0] * gap
        seg += [0] * gap
        return {
            "input_ids": torch.tensor(ids),
            "labels": torch.tensor(labels),
            "position_ids": torch.tensor(pos),
            "segment_ids": torch.tensor(seg),
        }


def document_mask(segment_ids, dtype):
    """(B, T) segment ids -> additive (B, 1, T, T) mask so that documents don't see each other."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    mask = torch.zeros(same.shape, dtype=dtype, device=segment_ids.device)
    mask.masked_fill_(~same, torch.finfo(dtype).min)
    return mask[:, None]
