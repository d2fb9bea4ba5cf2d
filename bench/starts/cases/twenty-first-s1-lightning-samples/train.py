import time

import lightning as L
import torch
from datasets import load_dataset
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
MAX_LEN = 4096

tok = AutoTokenizer.from_pretrained(MODEL)


def encode(row):
    msgs = row["messages"]
    prompt = tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
    full = prompt + msgs[-1]["content"] + "<|im_end|>\n"
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    f = tok(full, add_special_tokens=False)["input_ids"]
    return {"input_ids": f[:MAX_LEN], "labels": ([-100] * len(p) + f[len(p):])[:MAX_LEN]}


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), n), tok.pad_token_id)
    labels = torch.full((len(rows), n), -100)
    mask = torch.zeros((len(rows), n), dtype=torch.long)
    for i, r in enumerate(rows):
        k = len(r["input_ids"])
        ids[i, :k] = torch.tensor(r["input_ids"])
        labels[i, :k] = torch.tensor(r["labels"])
        mask[i, :k] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class Summarizer(L.LightningModule):
    def __init__(self, lr=1e-5, total_steps=3000):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(
            MODEL, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
        self.model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )

    def on_train_start(self):
        self.model.train()

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.0)
        sched = get_cosine_schedule_with_warmup(opt, 100, self.hparams.planned_steps)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class WriteSamples(L.Callback):
    def __init__(self, rows, every=500, max_new_tokens=1024):
        self.every, self.max_new_tokens, self.last = every, max_new_tokens, 0
        self.prompts = [
            tok.apply_chat_template(r["messages"][:-1], add_generation_prompt=True, tokenize=False)
            for r in rows
        ]

    @torch.no_grad()
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        step = trainer.global_step
        if step == self.last or step % self.every:
            return
        self.last = step
        enc = tok(self.prompts, return_tensors="pt", padding=True, padding_side="left",
                  add_special_tokens=False).to(module.device)
        start = time.time()
        out = module.model.generate(**enc, max_new_tokens=self.max_new_tokens, do_sample=False)
        seconds = time.time() - start
        texts = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        with open(f"samples/step-{step}.txt", "w") as f:
            f.write("\n\n=====\n\n".join(texts))
        new = out.shape[1] - enc["input_ids"].shape[1]
        print(f"[samples] step {step}: {len(texts)} prompts x {new} new tokens in {seconds:.1f} s")


def main():
    L.seed_everything(17)
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
    samples = [ds["val"][i] for i in range(32)]
    enc = ds.map(encode, remove_columns=ds["train"].column_names)
    train = DataLoader(enc["train"], batch_size=4, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(enc["val"], batch_size=4, collate_fn=collate, num_workers=4)
    trainer = L.Trainer(
        max_steps=3000, precision="bf16-true", accumulate_grad_batches=4, gradient_clip_val=1.0,
        val_check_interval=2000, log_every_n_steps=10,
        callbacks=[WriteSamples(samples), ModelCheckpoint(every_n_train_steps=1000)],
    )
    trainer.fit(Summarizer(), train, val)


if __name__ == "__main__":
    main()
