import lightning as L
import torch
from datasets import load_dataset
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig, get_peft_model
from torch.utils.data import ConcatDataset, DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
MAX_LEN = 1536


class MixData(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size
        self.tok = AutoTokenizer.from_pretrained(MODEL)

    def _chat(self, question, answer):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        p = self.tok(head, add_special_tokens=False)["input_ids"]
        a = self.tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        ids = (p + a)[:MAX_LEN]
        labels = ([-100] * len(p) + a)[:MAX_LEN]
        return {"input_ids": ids, "labels": labels}

    def setup(self, stage=None):
        code = load_dataset("iamtarun/python_code_instructions_18k_alpaca", split="train[:3200]")
        chat = load_dataset("databricks/databricks-dolly-15k", split="train[:3200]")
        poems = load_dataset("checkai/instruction-poems", split="train[:1600]")
        code = code.map(lambda r: self._chat(r["instruction"], r["output"]), remove_columns=code.column_names)
        chat = chat.map(lambda r: self._chat(r["instruction"] + "\n" + r["context"], r["response"]), remove_columns=chat.column_names)
        poems = poems.map(lambda r: self._chat(r["INSTRUCTION"], r["RESPONSE"]), remove_columns=poems.column_names)
        parts = [d.filter(lambda r: any(t != -100 for t in r["labels"])) for d in (code, chat, poems)]
        self.train_set = ConcatDataset(parts)

    def collate(self, rows):
        n = max(len(r["input_ids"]) for r in rows)
        pad = self.tok.pad_token_id
        return {
            "input_ids": torch.tensor([r["input_ids"] + [pad] * (n - len(r["input_ids"])) for r in rows]),
            "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (n - len(r["input_ids"])) for r in rows]),
            "labels": torch.tensor([r["labels"] + [-100] * (n - len(r["labels"])) for r in rows]),
        }

    def train_dataloader(self):
        return DataLoader(
            self.train_set,
            batch_size=self.batch_size,
            collate_fn=self.collate,
            num_workers=8,
            pin_memory=True,
            drop_last=True,
        )


class LitLM(L.LightningModule):
    def __init__(self, lr=2e-4, warmup=50):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
        self.model = get_peft_model(
            base,
            LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        )

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        params = [p for p in self.model.parameters() if p.requires_grad]
        opt = torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=0.01)
        sched = get_cosine_schedule_with_warmup(opt, self.hparams.warmup, self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(42)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=20,
        logger=CSVLogger("logs", name="mix"),
        callbacks=[LearningRateMonitor("step"), ModelCheckpoint("ckpt", every_n_train_steps=500)],
    )
    trainer.fit(LitLM(), MixData())
