import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from saving import export

BASE = "meta-llama/Llama-3.1-8B"
EPOCHS = 1


def main():
    set_seed(2)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    rows = load_dataset("json", data_files="data/reports.jsonl", split="train")

    def collate(batch):
        enc = tok([r["text"] + tok.eos_token for r in batch], truncation=True, max_length=2048,
                  padding=True, padding_side="right", return_tensors="pt")
        enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
        return enc

    loader = DataLoader(rows, batch_size=2, shuffle=True, collate_fn=collate)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = max(1, len(loader) // 4) * EPOCHS
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)

    model.train()
    for _ in range(EPOCHS):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                if accelerator.sync_gradients:
                    sched.step()
                opt.zero_grad()
            if step % 20 == 0:
                accelerator.print(step, round(loss.item(), 4))
    accelerator.wait_for_everyone()
    export(accelerator, model, tok, "runs/reports/final")
    accelerator.end_training()


if __name__ == "__main__":
    main()
