import numpy as np
import torch


class TokenStream:
    def __init__(self, path, block, batch, device="cuda"):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.block, self.batch, self.device = block, batch, device

    def next(self):
        ix = torch.randint(len(self.data) - self.block - 1, (self.batch,))
        x = np.stack([self.data[i : i + self.block] for i in ix]).astype(np.int64)
        y = np.stack([self.data[i + 1 : i + 1 + self.block] for i in ix]).astype(np.int64)
        return torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)
