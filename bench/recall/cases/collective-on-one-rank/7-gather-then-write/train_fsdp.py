import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE, OUT = "Qwen/Qwen2.5-3B", "out/letters"


def export(model, tok, rank):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        os.makedirs(OUT, exist_ok=True)
        torch.save(state, os.path.join(OUT, "pytorch_model.bin"))
        model.config.save_pretrained(OUT)
        tok.save_pretrained(OUT)
    dist.barrier()


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mp_policy=mp)
    fully_shard(model, mp_policy=mp)

    ds = load_dataset("json", data_files="letters.jsonl", split="train")

    def collate(rows):
        enc = tok(
            [r["text"] + tok.eos_token for r in rows],
            padding=True, truncation=True, max_length=1024, return_tensors="pt", add_special_tokens=False,
        )
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    sampler = DistributedSampler(ds, shuffle=True, seed=2)
    loader = DataLoader(ds, batch_size=4, sampler=sampler, collate_fn=collate)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model.train()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            loss = model(**batch.to(local)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if rank == 0 and step % 20 == 0:
                print(epoch, step, loss.item(), flush=True)
    export(model, tok, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
