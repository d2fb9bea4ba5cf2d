# torchrun --standalone --nproc_per_node 4 train.py
import os

import torch
import torch.distributed as dist
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

from sync import mean_gradients, same_start

NAME = "Qwen/Qwen2.5-3B-Instruct"


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    set_seed(4)
    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_from_disk("data/tutor_tokenized")  # input_ids, attention_mask, labels
    sampler = DistributedSampler(ds, shuffle=True, seed=4)
    loader = DataLoader(ds, batch_size=8, sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tok))

    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    ).to(device)
    weights = [w for w in model.parameters() if w.requires_grad]
    same_start(weights)
    optimizer = torch.optim.AdamW(weights, lr=1e-4)

    model.train()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            loss = model(**batch.to(device)).loss
            loss.backward()
            mean_gradients(weights)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if dist.get_rank() == 0 and i % 20 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        model.save_pretrained("runs/tutor")
        tok.save_pretrained("runs/tutor")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
