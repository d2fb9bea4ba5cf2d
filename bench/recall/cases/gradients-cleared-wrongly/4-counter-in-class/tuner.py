import torch
from transformers import get_cosine_schedule_with_warmup


class Tuner:
    def __init__(self, model, loader, epochs=3, accum=8, lr=1e-5):
        self.model = model
        self.loader = loader
        self.epochs = epochs
        self.accum = accum
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        total = epochs * -(-len(loader) // accum)
        self.scheduler = get_cosine_schedule_with_warmup(self.optimizer, total // 20, total)
        self.updates = 0

    def micro_step(self, batch):
        batch = {k: v.to(self.model.device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(**batch).loss
        (loss / self.accum).backward()
        if self.updates % self.accum == 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.updates += 1
        return loss.item()

    def fit(self):
        self.model.train()
        for epoch in range(self.epochs):
            total = 0.0
            for batch in self.loader:
                total += self.micro_step(batch)
            print(f"epoch {epoch}: mean loss {total / len(self.loader):.4f}")
