# deepspeed --num_gpus 8 finetune_ds.py --data data/sft_train.jsonl
import argparse, json, math, os, time

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MICRO_BS = 2
GRAD_ACCUM = 8
EPOCHS = 2
MAX_LEN = 2048


class SFTData(Dataset):
    def __init__(self, path, tok):
        self.tok = tok
        with open(path) as f:
            self.rows = [json.loads(x) for x in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        msgs = [{"role": "user", "content": r["prompt"]}]
        prompt = self.tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)
        p = self.tok(prompt, add_special_tokens=False).input_ids
        a = self.tok(r["response"] + "<|eot_id|>", add_special_tokens=False).input_ids
        ids = (p + a)[:MAX_LEN]
        lab = ([-100] * len(p) + a)[:MAX_LEN]
        return ids, lab


def collate(pad_id):
    def fn(batch):
        n = max(len(i) for i, _ in batch)
        ids = torch.full((len(batch), n), pad_id)
        lab = torch.full((len(batch), n), -100)
        att = torch.zeros((len(batch), n), dtype=torch.long)
        for k, (i, l) in enumerate(batch):
            ids[k, : len(i)] = torch.tensor(i)
            lab[k, : len(l)] = torch.tensor(l)
            att[k, : len(i)] = 1
        return {"input_ids": ids, "attention_mask": att, "labels": lab}
    return fn


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", default="ckpt/llama31-sft")
    ap.add_argument("--local_rank", type=int, default=-1)
    args = ap.parse_args()

    deepspeed.init_distributed()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)

    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.config.use_cache = False
    model.gradient_checkpointing_enable()

    ds = SFTData(args.data, tok)
    sampler = DistributedSampler(ds, num_replicas=world, rank=rank, shuffle=True, seed=1234, drop_last=True)
    dl = DataLoader(ds, batch_size=MICRO_BS, sampler=sampler, collate_fn=collate(tok.pad_token_id),
                    num_workers=4, drop_last=True)

    updates = EPOCHS * len(dl) // GRAD_ACCUM
    with open("ds_config.json") as f:
        ds_config = json.load(f)
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config=ds_config,
        lr_scheduler=lambda opt: get_cosine_schedule_with_warmup(opt, int(0.03 * updates), updates),
    )
    if rank == 0:
        print(f"rows {len(ds)}  micro batches/epoch/rank {len(dl)}  updates {updates}  world {world}", flush=True)

    micro, t0 = 0, time.time()
    running = 0.0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        engine.train()
        for batch in dl:
            batch = {k: v.to(engine.device, non_blocking=True) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            running += loss.item()
            micro += 1
            if micro % GRAD_ACCUM == 0:
                engine.step()
                if (micro // GRAD_ACCUM) % 10 == 0 and rank == 0:
                    n = 10 * GRAD_ACCUM
                    print(f"epoch {epoch} update {micro // GRAD_ACCUM}/{updates} loss {running / n:.4f} "
                          f"lr {scheduler.get_last_lr()[0]:.2e} global_steps {engine.global_steps} "
                          f"{n * MICRO_BS * world / (time.time() - t0):.1f} samples/s", flush=True)
                if (micro // GRAD_ACCUM) % 10 == 0:
                    running, t0 = 0.0, time.time()
        engine.save_checkpoint(args.out, tag=f"epoch{epoch}")

    engine.save_16bit_model(args.out, "pytorch_model.bin")
    if rank == 0:
        tok.save_pretrained(args.out)
        model.config.save_pretrained(args.out)


if __name__ == "__main__":
    main()
