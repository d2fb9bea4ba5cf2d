import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup


class Runner:
    def __init__(self, cfg: dict, dataset):
        self.cfg = cfg
        self.device = torch.device("cuda")
        self.tok = AutoTokenizer.from_pretrained(cfg["model"])
        self.model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
        self.loader = DataLoader(
            dataset,
            batch_size=cfg["batch_size"],
            shuffle=True,
            collate_fn=DataCollatorForSeq2Seq(self.tok, label_pad_token_id=-100),
        )
        self._make_optimizer()
        self._attach_lora()
        self.model.to(self.device)

    def _make_optimizer(self):
        decay = [p for p in self.model.parameters() if p.ndim >= 2]
        rest = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
        self.opt = torch.optim.AdamW(groups, lr=self.cfg["lr"], betas=(0.9, 0.95))
        n = self.cfg["epochs"] * len(self.loader)
        self.sched = get_cosine_schedule_with_warmup(self.opt, n // 20, n)

    def _attach_lora(self):
        lora = LoraConfig(task_type="CAUSAL_LM", **self.cfg["lora"])
        self.model = get_peft_model(self.model, lora)

    def step(self, batch):
        batch = {k: v.to(self.device) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad()
        return loss.item()

    def fit(self):
        self.model.train()
        for epoch in range(self.cfg["epochs"]):
            for i, batch in enumerate(self.loader):
                value = self.step(batch)
                if i % 25 == 0:
                    print(f"[{epoch}] {i}/{len(self.loader)} {value:.4f}", flush=True)
        self.model.save_pretrained(self.cfg["out"])
        self.tok.save_pretrained(self.cfg["out"])
