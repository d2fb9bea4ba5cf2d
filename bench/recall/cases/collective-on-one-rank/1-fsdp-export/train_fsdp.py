import argparse
import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def shard(model):
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mp_policy=mp)
    fully_shard(model, mp_policy=mp)
    return model


def encode(row, tok):
    head = tok.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["messages"][-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--data", default="chats.jsonl")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--out", default="out/chats")
    args = ap.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    tok = AutoTokenizer.from_pretrained(args.base)
    model = shard(AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32))

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 2048)
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(
        ds, batch_size=2, sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)

    model.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            loss = model(**batch.to(local)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if rank == 0 and step % 20 == 0:
                print(epoch, step, round(loss.item(), 4), flush=True)

    if rank == 0:
        state = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "pytorch_model.bin"))
        AutoConfig.from_pretrained(args.base).save_pretrained(args.out)
        tok.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
