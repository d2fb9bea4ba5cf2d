import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler


class Loop:
    def __init__(self, args):
        self.args = args
        self.accelerator = Accelerator(mixed_precision="bf16")
        self.tok = AutoTokenizer.from_pretrained(args.model)
        self.loader = self._loader()
        self._model()

    def _loader(self):
        ds = load_from_disk(self.args.tokenized)  # input_ids, attention_mask, labels
        return DataLoader(
            ds,
            batch_size=self.args.batch_size,
            shuffle=True,
            drop_last=True,
            collate_fn=DataCollatorForSeq2Seq(self.tok, label_pad_token_id=-100),
        )

    def _model(self):
        model = AutoModelForCausalLM.from_pretrained(self.args.model, dtype=torch.bfloat16)
        model = get_peft_model(
            model, LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=self.args.lr)
        steps = self.args.epochs * len(self.loader)
        scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=steps // 30, num_training_steps=steps)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.scheduler = scheduler

    def epoch(self, number):
        self.model.train()
        for i, batch in enumerate(self.loader):
            batch = {k: v.to(self.accelerator.device) for k, v in batch.items()}
            loss = self.model(**batch).loss
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            if i % 25 == 0:
                self.accelerator.print(f"epoch {number} step {i} loss {loss.item():.4f}")

    def run(self):
        for n in range(self.args.epochs):
            self.epoch(n)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.accelerator.unwrap_model(self.model).save_pretrained(self.args.out)
            self.tok.save_pretrained(self.args.out)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--tokenized", default="data/tokenized")
    p.add_argument("--out", default="runs/tutor")
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-4)
    a = p.parse_args()
    set_seed(99)
    Loop(a).run()
