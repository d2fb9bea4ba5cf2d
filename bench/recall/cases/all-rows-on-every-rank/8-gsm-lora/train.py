import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def rows_for(accelerator, tok):
    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    with accelerator.main_process_first():
        ds = load_dataset("openai/gsm8k", "main", split="train")
        ds = ds.map(encode, remove_columns=ds.column_names).shuffle(seed=9)
    n = accelerator.num_processes
    ds = ds.select(range(len(ds) // n * n))
    ds = ds.shard(num_shards=n, index=accelerator.process_index, contiguous=True)
    return ds


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    loader = DataLoader(
        rows_for(accelerator, tok),
        batch_size=8,
        shuffle=True,
        drop_last=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    model.train()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            loss = model(**batch.to(accelerator.device)).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                accelerator.print(epoch, step, round(loss.item(), 4))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out/gsm-lora")
        tok.save_pretrained("out/gsm-lora")
    accelerator.end_training()


if __name__ == "__main__":
    main()
