from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_


@dataclass
class Loop:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: object
    device: torch.device
    accum: int = 1
    clip: float = 1.0
    history: list = field(default_factory=list)

    @property
    def net(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def step(self, micro_batches):
        self.net.train()
        n = sum(int((b["labels"][:, 1:] != -100).sum()) for b in micro_batches)
        total = 0.0
        for b in micro_batches:
            b = {k: v.to(self.device) for k, v in b.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = self.net(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), b["labels"][:, 1:].flatten(),
                ignore_index=-100, reduction="sum",
            ) / n
            loss.backward()
            total += loss.item()
        gn = clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total, float(gn)

    @torch.no_grad()
    def evaluate(self, loader):
        self.net.eval()
        s = torch.zeros(2, device=self.device)
        for b in loader:
            b = {k: v.to(self.device) for k, v in b.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = self.net(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
            t = b["labels"][:, 1:]
            s[0] += torch.nn.functional.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), t.flatten(), ignore_index=-100, reduction="sum")
            s[1] += (t != -100).sum()
        return (s[0] / s[1]).item()
