import lightning as L
from datasets import load_dataset
from lightning.pytorch.callbacks import LearningRateMonitor
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from module import Tuner

NAME = "HuggingFaceTB/SmolLM2-1.7B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    L.seed_everything(4)
    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    tuner = Tuner(NAME)
    trainer = L.Trainer(max_epochs=3, precision="bf16-mixed", accelerator="gpu", devices=1,
                        accumulate_grad_batches=2, gradient_clip_val=1.0,
                        callbacks=[LearningRateMonitor(logging_interval="step")],
                        default_root_dir="runs/smol")
    trainer.fit(
        tuner,
        DataLoader(ds["train"], batch_size=8, shuffle=True, collate_fn=collate, num_workers=4),
        DataLoader(ds["test"], batch_size=8, collate_fn=collate, num_workers=4),
    )
    tuner.model.save_pretrained("runs/smol/adapter")
    tok.save_pretrained("runs/smol/adapter")


if __name__ == "__main__":
    main()
