from dataclasses import dataclass

import torch
from transformers import get_cosine_schedule_with_warmup


@dataclass
class Plan:
    epochs: int = 3
    accumulate: int = 16
    lr: float = 2e-4
    warmup: float = 0.03


class Engine:
    def __init__(self, model, loader, plan: Plan):
        self.model, self.loader, self.plan = model, loader, plan
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=plan.lr, weight_decay=0.0)
        updates = plan.epochs * (len(loader) // plan.accumulate)
        self.scheduler = get_cosine_schedule_with_warmup(self.optimizer, int(updates * plan.warmup), updates)

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self):
        self.model.train()
        for epoch in range(self.plan.epochs):
            for i, batch in enumerate(self.loader, start=1):
                batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = self.model(**batch).loss / self.plan.accumulate
                loss.backward()
                if i % self.plan.accumulate == 0:
                    self.update()
                self.scheduler.step()
            self.optimizer.zero_grad(set_to_none=True)
            print(f"epoch {epoch} loss {loss.item() * self.plan.accumulate:.4f}")
