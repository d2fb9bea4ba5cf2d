"""Two tasks per step: reply writing and ticket routing, one joint backward."""
import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
TASKS = {"reply": 1.0, "route": 0.3}


def forever(loader):
    while True:
        yield from loader


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).cuda()
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    streams = {
        t: forever(DataLoader(load_from_disk(f"data/{t}"), batch_size=4, shuffle=True, collate_fn=collate)) for t in TASKS
    }
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0.0)

    losses = []
    model.train()
    for step in range(1500):
        parts = []
        for task, weight in TASKS.items():
            batch = {k: v.cuda() for k, v in next(streams[task]).items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = weight * model(**batch).loss
            parts.append(loss)
        total = torch.stack(parts).sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(total.item())
        if step % 50 == 49:
            print(step + 1, sum(losses[-50:]) / 50)
    model.save_pretrained("out/joint")
    tok.save_pretrained("out/joint")


if __name__ == "__main__":
    main()
