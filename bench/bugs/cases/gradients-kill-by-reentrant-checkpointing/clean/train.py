import torch
from datasets import load_from_disk
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
model.transformer.wte.requires_grad_(False)
model.transformer.wpe.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

for row in load_from_disk("encoded"):
    ids = torch.tensor([row["input_ids"]], device="cuda")
    places = torch.arange(ids.shape[1], device="cuda")
    hidden = model.transformer.wte(ids) + model.transformer.wpe(places)
    for block in model.transformer.h:
        hidden = checkpoint(block, hidden, use_reentrant=False)
    logits = model.lm_head(model.transformer.ln_f(hidden))
    loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
