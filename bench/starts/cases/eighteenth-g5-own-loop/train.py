# full finetune of smollm2 on our recipe corpus, single node
import json, math, os, time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class Cfg:
    base: str = "HuggingFaceTB/SmolLM2-360M"
    data: str = "recipes.jsonl"
    out: str = "ckpt"
    ctx: int = 1024
    bs: int = 8
    accum: int = 4
    lr: float = 3e-5
    min_lr: float = 3e-6
    warmup: int = 100
    steps: int = 2400
    clip: float = 1.0
    log_every: int = 50


cfg = Cfg()
torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
tok = AutoTokenizer.from_pretrained(cfg.base)


class Blocks(Dataset):
    def __init__(self, path):
        ids = []
        with open(path) as f:
            for line in f:
                ids += tok(json.loads(line)["text"])["input_ids"] + [tok.eos_token_id]
        n = len(ids) // cfg.ctx
        self.x = torch.tensor(ids[: n * cfg.ctx]).view(n, cfg.ctx)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def lr_at(step):
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    r = (step - cfg.warmup) / (cfg.steps - cfg.warmup)
    return cfg.min_lr + 0.5 * (1 + math.cos(math.pi * r)) * (cfg.lr - cfg.min_lr)


def forever(dl):
    while True:
        yield from dl


model = AutoModelForCausalLM.from_pretrained(cfg.base, torch_dtype=torch.float32).cuda()
model.config.use_cache = False
model = torch.compile(model)

opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
dl = DataLoader(Blocks(cfg.data), batch_size=cfg.bs, shuffle=True, drop_last=True, num_workers=2)
it = forever(dl)

model.train()
t0 = time.time()
for step in range(cfg.steps):
    for g in opt.param_groups:
        g["lr"] = lr_at(step)
    total = 0.0
    for _ in range(cfg.accum):
        x = next(it).cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(input_ids=x).logits
        loss = F.cross_entropy(logits[:, :-1].float().reshape(-1, logits.size(-1)), x[:, 1:].reshape(-1))
        (loss / cfg.accum).backward()
        total += loss.item() / cfg.accum
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
    opt.step()
    opt.zero_grad(set_to_none=True)
    if step % cfg.log_every == 0 or step == cfg.steps - 1:
        print(f"step {step:5d} | loss {total:.4f} | norm {norm:.3f} | lr {lr_at(step):.2e} | {time.time() - t0:.0f}s", flush=True)

os.makedirs(cfg.out, exist_ok=True)
torch.save(model.state_dict(), f"{cfg.out}/model.pt")
tok.save_pretrained(cfg.out)
