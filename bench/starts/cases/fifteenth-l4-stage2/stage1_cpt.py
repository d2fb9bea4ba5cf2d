# continued pretraining on the hydrology corpus (done, 2 days on 1x H100)
import os

import torch
from datasets import load_from_disk
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "meta-llama/Llama-3.2-3B"
OUT = "/scratch/hydro/stage1/final"
BS, ACC, LR = 4, 16, 2e-5

tok = AutoTokenizer.from_pretrained(BASE)
ds = load_from_disk("/scratch/hydro/packed_4096").with_format("torch")
dl = DataLoader(ds, batch_size=BS, shuffle=True, num_workers=4, drop_last=True)

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.float32, attn_implementation="sdpa").cuda()
model.gradient_checkpointing_enable()
model.config.use_cache = False
config = model.config
model = torch.compile(model)

opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
steps = len(dl) // ACC
sched = get_cosine_schedule_with_warmup(opt, 100, steps)

model.train()
for i, batch in enumerate(dl):
    ids = batch["input_ids"].cuda(non_blocking=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss / ACC
    loss.backward()
    if (i + 1) % ACC == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if (i + 1) // ACC % 20 == 0:
            print(f"step {(i + 1) // ACC}/{steps} loss {loss.item() * ACC:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)

os.makedirs(OUT, exist_ok=True)
state = {k: v.to(torch.bfloat16).contiguous().clone() for k, v in model.state_dict().items() if "lm_head" not in k}
save_file(state, f"{OUT}/model.safetensors", metadata={"format": "pt"})
config.use_cache = True
config.torch_dtype = torch.bfloat16
config.save_pretrained(OUT)
tok.save_pretrained(OUT)
