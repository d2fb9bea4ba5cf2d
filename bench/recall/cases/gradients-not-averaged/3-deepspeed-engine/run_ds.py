import argparse

import deepspeed
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from objective import label_smoothed_loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--file", default="briefs.jsonl")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--local_rank", type=int, default=-1)
    ap = deepspeed.add_config_arguments(ap)
    args = ap.parse_args()

    deepspeed.init_distributed()
    tok = AutoTokenizer.from_pretrained(args.base)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["facts"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["brief"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files=args.file, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names).filter(lambda r: len(r["input_ids"]) <= 2048)
    engine, _, loader, _ = deepspeed.initialize(
        args=args,
        model=model,
        model_parameters=model.parameters(),
        training_data=ds,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )

    engine.train()
    for epoch in range(args.epochs):
        loader.data_sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = label_smoothed_loss(engine, batch)
            engine.backward(loss)
            engine.step()
            if engine.global_rank == 0 and step % 50 == 0:
                print(epoch, step, round(loss.item(), 4), flush=True)
    engine.save_checkpoint("ckpt", tag="last")


if __name__ == "__main__":
    main()
