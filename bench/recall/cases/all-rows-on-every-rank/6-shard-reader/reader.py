import glob
import gzip
import json
import random

from torch.utils.data import IterableDataset, get_worker_info


class JsonShards(IterableDataset):
    def __init__(self, pattern, tok, max_len=1024, seed=0):
        self.files = sorted(glob.glob(pattern))
        self.tok, self.max_len, self.seed = tok, max_len, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else self.files
        mine = list(mine)
        random.Random(self.seed + self.epoch).shuffle(mine)
        for path in mine:
            with gzip.open(path, "rt", encoding="utf-8") as f:
                for line in f:
                    text = json.loads(line)["text"]
                    ids = self.tok(text, add_special_tokens=False)["input_ids"][: self.max_len - 1]
                    yield ids + [self.tok.eos_token_id]
