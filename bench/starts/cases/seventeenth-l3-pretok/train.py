import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler, set_seed

set_seed(7)
model_name = "Qwen/Qwen3-1.7B-Base"
epochs, bs, lr = 4, 8, 1e-5

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForCausalLM.from_pretrained(model_name)
model.gradient_checkpointing_enable()
model.config.use_cache = False

ds = load_dataset("parquet", data_files="data/train_tok.parquet", split="train")
collator = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
loader = DataLoader(ds, batch_size=bs, shuffle=True, collate_fn=collator)

optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
n_steps = epochs * (len(loader) // 2)
scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=4, num_training_steps=n_steps)

done = 0
for epoch in range(epochs):
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                grad_norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            scheduler.step()
            done += 1
            accelerator.print(
                {"step": done, "loss": round(loss.item(), 4), "grad_norm": round(float(grad_norm), 3), "lr": scheduler.get_last_lr()[0], "epoch": epoch}
            )

accelerator.wait_for_everyone()
accelerator.unwrap_model(model).save_pretrained("out/qwen3-faq")
tokenizer.save_pretrained("out/qwen3-faq")
