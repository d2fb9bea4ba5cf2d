import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from sync import average_gradients, broadcast_parameters

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.to(device)
    broadcast_parameters(model)

    def encode(r):
        head = tok.apply_chat_template([{"role": "user", "content": r["q"]}], tokenize=False, add_generation_prompt=True)
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(r["a"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files="qa.jsonl", split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
    loader = DataLoader(
        ds, batch_size=4, sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=2e-4)
    model.train()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            loss = model(**batch.to(device)).loss
            loss.backward()
            average_gradients(params)
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if dist.get_rank() == 0 and step % 20 == 0:
                print(epoch, step, loss.item(), flush=True)
    if dist.get_rank() == 0:
        model.save_pretrained("out/qa-lora")
        tok.save_pretrained("out/qa-lora")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
