import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    get_cosine_schedule_with_warmup,
)

MODEL_ID = "meta-llama/Llama-3.2-1B"
EVAL_EVERY = 200

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
tok = AutoTokenizer.from_pretrained(MODEL_ID)
tok.pad_token = "<|finetune_right_pad_id|>"
net = AutoModelForCausalLM.from_pretrained(MODEL_ID, dtype=torch.bfloat16)

raw = load_dataset("json", data_files={"train": "notes_train.jsonl", "valid": "notes_valid.jsonl"})
cols = raw["train"].column_names


def encode(batch):
    return tok([note + tok.eos_token for note in batch["note"]], truncation=True, max_length=1024)


with accelerator.main_process_first():
    ds = raw.map(encode, batched=True, remove_columns=cols)

collate = DataCollatorForLanguageModeling(tok, mlm=False)
train_dl = DataLoader(ds["train"], batch_size=4, shuffle=True, collate_fn=collate)
valid_dl = DataLoader(ds["valid"], batch_size=8, collate_fn=collate)
opt = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.0)
sched = get_cosine_schedule_with_warmup(opt, 100, 4000)
net, opt, train_dl, valid_dl, sched = accelerator.prepare(net, opt, train_dl, valid_dl, sched)

step = 0
for _ in range(2):
    net.train()
    for batch in train_dl:
        with accelerator.accumulate(net):
            loss = net(**batch).loss
            accelerator.backward(loss)
            opt.step()
            sched.step()
            opt.zero_grad()
        step += 1
        if step % EVAL_EVERY == 0 and accelerator.is_main_process:
            net.eval()
            losses = []
            for vb in valid_dl:
                with torch.no_grad():
                    vloss = net(**vb).loss
                losses.append(accelerator.gather_for_metrics(vloss.repeat(8)))
            print(f"step {step} valid {torch.cat(losses).mean().item():.4f}")
            net.train()

accelerator.wait_for_everyone()
accelerator.unwrap_model(net).save_pretrained("out-notes", save_function=accelerator.save)
