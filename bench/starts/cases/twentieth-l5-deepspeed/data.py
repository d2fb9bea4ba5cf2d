import numpy as np
import torch
from torch.utils.data import Dataset


class PackedDataset(Dataset):
    def __init__(self, path, seq_len):
        flat = np.load(path, mmap_mode="r")
        n = len(flat) // seq_len
        self.rows = flat[: n * seq_len].reshape(n, seq_len)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.from_numpy(self.rows[i].astype(np.int64))
