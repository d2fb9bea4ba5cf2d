import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

NAME = "Qwen/Qwen2.5-3B-Instruct"
EPOCHS = 2


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["output"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(42)
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))

    with accelerator.main_process_first():
        ds = load_dataset("json", data_files="instructions.jsonl", split="train")
        ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
        ds = ds.filter(lambda r: len(r["input_ids"]) <= 1536)
    train_loader = DataLoader(
        ds, batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    model, optimizer = accelerator.prepare(model, optimizer)

    model.train()
    for epoch in range(EPOCHS):
        for step, batch in enumerate(train_loader):
            batch = {k: v.to(accelerator.device) for k, v in batch.items()}
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(f"{epoch}:{step} {loss.item():.4f}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out/instruct-lora")
        tok.save_pretrained("out/instruct-lora")
    accelerator.end_training()


if __name__ == "__main__":
    main()
