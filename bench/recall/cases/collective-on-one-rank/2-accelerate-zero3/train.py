import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup

BASE = "Qwen/Qwen2.5-14B-Instruct"
OUT = "out/policy-14b"
EPOCHS = 2


def build_dataset(tok):
    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["query"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["reply"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    ds = load_dataset("json", data_files="policy.jsonl", split="train")
    return ds.map(encode, remove_columns=ds.column_names).filter(lambda r: len(r["input_ids"]) <= 2048)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with accelerator.main_process_first():
        ds = build_dataset(tok)
    loader = DataLoader(
        ds, batch_size=2, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01)
    updates = EPOCHS * len(loader) // 4
    scheduler = get_cosine_schedule_with_warmup(optimizer, updates // 20, updates)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    for epoch in range(EPOCHS):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 40 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unwrapped = accelerator.unwrap_model(model)
        unwrapped.save_pretrained(
            OUT,
            save_function=accelerator.save,
            state_dict=accelerator.get_state_dict(model),
        )
        tok.save_pretrained(OUT)
    accelerator.end_training()


if __name__ == "__main__":
    main()
