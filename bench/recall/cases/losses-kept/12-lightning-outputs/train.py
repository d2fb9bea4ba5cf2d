import lightning as L
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from module import ChatTuner

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def encode(row, tok):
    prompt = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                     tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    L.seed_everything(11)
    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(ds["test"], batch_size=8, collate_fn=collate, num_workers=4)
    tuner = ChatTuner(NAME)
    trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", accelerator="gpu", devices=1,
                        gradient_clip_val=1.0, log_every_n_steps=20, default_root_dir="runs/gsm8k")
    trainer.fit(tuner, train, val)
    tuner.model.save_pretrained("runs/gsm8k/adapter")


if __name__ == "__main__":
    main()
