import sys

import lightning as L
from datasets import load_dataset
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from lit_model import ChatModule


def encode(row, tok, limit):
    p = tok.apply_chat_template([{"role": "user", "content": row["input"]}], tokenize=False, add_generation_prompt=True)
    p = tok(p, add_special_tokens=False)["input_ids"]
    a = tok(row["output"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids, labels = (p + a)[:limit], ([-100] * len(p) + a)[:limit]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def main():
    cfg = OmegaConf.load(sys.argv[1])
    L.seed_everything(cfg.seed)
    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    ds = load_dataset("json", data_files={"train": cfg.data.train, "val": cfg.data.val})
    ds = ds.map(lambda r: encode(r, tok, cfg.data.max_length), remove_columns=ds["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=cfg.data.batch_size, shuffle=True, collate_fn=collate, num_workers=2)
    val = DataLoader(ds["val"], batch_size=cfg.data.batch_size, collate_fn=collate, num_workers=2)

    module = ChatModule(cfg)
    trainer = L.Trainer(
        max_epochs=cfg.optim.epochs,
        precision="bf16-mixed",
        accumulate_grad_batches=cfg.optim.accumulate,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        default_root_dir=cfg.out,
    )
    trainer.fit(module, train, val)
    module.save(cfg.out)
    tok.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
