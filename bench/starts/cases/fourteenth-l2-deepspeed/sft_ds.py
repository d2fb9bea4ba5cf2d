import argparse
import json

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig


class Rows(Dataset):
    def __init__(self, path, tok, max_len):
        self.rows = []
        for line in open(path):
            r = json.loads(line)
            p = tok(f"### Instruction:\n{r['instruction']}\n\n### Response:\n")["input_ids"]
            a = tok(r["response"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
            if len(p) + len(a) > max_len:
                continue
            self.rows.append((p + a, [-100] * len(p) + a))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collate:
    def __init__(self, pad):
        self.pad = pad

    def __call__(self, rows):
        n = max(len(x) for x, _ in rows)
        ids = torch.tensor([x + [self.pad] * (n - len(x)) for x, _ in rows])
        labels = torch.tensor([y + [-100] * (n - len(y)) for _, y in rows])
        mask = torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x, _ in rows])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_path", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max_len", type=int, default=2048)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(1234)
    ds_config = json.load(open(args.deepspeed_config))
    dschf = HfDeepSpeedConfig(ds_config)  # keep this object alive

    tok = AutoTokenizer.from_pretrained(args.model_path)
    model = AutoModelForCausalLM.from_pretrained(args.model_path, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.gradient_checkpointing_enable()
    model.config.use_cache = False

    data = Rows(args.train_file, tok, args.max_len)
    engine, optimizer, loader, scheduler = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=data,
        collate_fn=Collate(tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")),
        config=ds_config,
    )
    if dist.get_rank() == 0:
        print(f"rows {len(data)}  micro batches per epoch {len(loader)}")

    engine.train()
    for epoch in range(args.epochs):
        loader.data_sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(engine.device) for k, v in batch.items()}
            loss = engine(**batch).loss
            engine.backward(loss)
            boundary = engine.is_gradient_accumulation_boundary()
            engine.step()
            if boundary and engine.global_steps % 10 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(f"epoch {epoch} step {engine.global_steps} loss {mean.item():.4f}", flush=True)
        engine.save_checkpoint(args.out, tag=f"epoch{epoch}")
    engine.save_16bit_model(args.out)


if __name__ == "__main__":
    main()
