import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
    set_seed,
)

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
OUT = "runs/faq-lora"
EPOCHS, BATCH, MAX_LEN = 3, 8, 768


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["answer"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def main():
    set_seed(0)
    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_dataset("json", data_files="data/faq.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= MAX_LEN)
    loader = DataLoader(ds, batch_size=BATCH, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok))

    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.0)
    total = len(loader) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    lora = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()

    model.train()
    step = 0
    for epoch in range(EPOCHS):
        for batch in loader:
            batch = {k: v.cuda() for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f}")

    model.save_pretrained(OUT)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
