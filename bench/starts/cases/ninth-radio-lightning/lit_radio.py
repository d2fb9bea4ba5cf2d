"""News scripts for a local radio: bullet points in, 40 seconds of spoken text out.

Lightning 2.4, LoRA on Llama 3.2 1B, one L4.
"""
import json

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "meta-llama/Llama-3.2-1B-Instruct"


def load_rows(path):
    with open(path, encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


class RadioData(L.LightningDataModule):
    def __init__(self, train_path, valid_path, batch_size=8, max_length=768):
        super().__init__()
        self.save_hyperparameters()
        self.tokenizer = AutoTokenizer.from_pretrained(MODEL)
        self.pad_id = self.tokenizer.convert_tokens_to_ids("<|finetune_right_pad_id|>")

    def encode(self, row):
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": "Write the script:\n- " + "\n- ".join(row["points"])}],
            tokenize=False,
            add_generation_prompt=True,
        )
        p = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        a = self.tokenizer(row["script"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
        return {"input_ids": p + a, "labels": [-100] * len(p) + a}

    def setup(self, stage=None):
        keep = lambda r: len(r["input_ids"]) <= self.hparams.max_length
        self.train = [r for r in map(self.encode, load_rows(self.hparams.train_path)) if keep(r)]
        self.valid = [r for r in map(self.encode, load_rows(self.hparams.valid_path)) if keep(r)]

    def collate(self, batch):
        width = max(len(r["input_ids"]) for r in batch)
        pad = lambda seq, value: seq + [value] * (width - len(seq))
        return {
            "input_ids": torch.tensor([pad(r["input_ids"], self.pad_id) for r in batch]),
            "labels": torch.tensor([pad(r["labels"], -100) for r in batch]),
            "attention_mask": torch.tensor([pad([1] * len(r["input_ids"]), 0) for r in batch]),
        }

    def train_dataloader(self):
        return DataLoader(self.train, self.hparams.batch_size, shuffle=True, collate_fn=self.collate, num_workers=2)

    def val_dataloader(self):
        return DataLoader(self.valid, self.hparams.batch_size, collate_fn=self.collate, num_workers=2)


class RadioModel(L.LightningModule):
    def __init__(self, lr=2e-4, warmup_steps=50):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
        lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, lora)

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True, on_step=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        params = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(params, lr=self.hparams.lr)
        scheduler = get_linear_schedule_with_warmup(
            optimizer,
            num_warmup_steps=self.hparams.warmup_steps,
            num_training_steps=self.trainer.estimated_stepping_batches,
        )
        return [optimizer], [scheduler]


if __name__ == "__main__":
    L.seed_everything(3)
    data = RadioData("data/scripts_train.jsonl", "data/scripts_valid.jsonl")
    model = RadioModel()
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        accumulate_grad_batches=4,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger("logs", name="radio"),
        callbacks=[
            LearningRateMonitor(logging_interval="step"),
            ModelCheckpoint(monitor="val_loss", save_top_k=1),
        ],
    )
    trainer.fit(model, data)
    model.model.save_pretrained("radio-lora")
    data.tokenizer.save_pretrained("radio-lora")
