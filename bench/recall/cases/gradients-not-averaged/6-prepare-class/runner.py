import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_linear_schedule_with_warmup


class Runner:
    def __init__(self, cfg, make_rows):
        self.cfg = cfg
        self.acc = Accelerator(mixed_precision="bf16")
        self.tok = AutoTokenizer.from_pretrained(cfg["base"])
        self.model = AutoModelForCausalLM.from_pretrained(cfg["base"], dtype=torch.float32)
        self.model.to(self.acc.device)
        with self.acc.main_process_first():
            rows = make_rows(cfg["data"], self.tok)
        self.loader = DataLoader(
            rows,
            batch_size=cfg["batch_size"],
            shuffle=True,
            collate_fn=DataCollatorForSeq2Seq(self.tok, label_pad_token_id=-100),
        )
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg["lr"], weight_decay=0.01)
        total = cfg["epochs"] * len(self.loader)
        self.sched = get_linear_schedule_with_warmup(self.opt, total // 20, total)
        self.opt, self.loader, self.sched = self.acc.prepare(self.opt, self.loader, self.sched)

    def train(self):
        self.model.train()
        for epoch in range(self.cfg["epochs"]):
            for i, batch in enumerate(self.loader):
                with self.acc.autocast():
                    loss = self.model(**batch).loss
                self.acc.backward(loss)
                self.acc.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.sched.step()
                self.opt.zero_grad()
                if i % 25 == 0:
                    self.acc.print(f"[{epoch}:{i}] {loss.item():.4f}")

    def save(self):
        self.acc.wait_for_everyone()
        if self.acc.is_main_process:
            self.model.save_pretrained(self.cfg["out"])
            self.tok.save_pretrained(self.cfg["out"])
