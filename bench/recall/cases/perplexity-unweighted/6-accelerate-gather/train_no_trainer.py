import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from evalloop import run_eval

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
EVAL_BS = 8


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(8)
    tok = AutoTokenizer.from_pretrained(BASE)

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["instruction"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["response"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    with accelerator.main_process_first():
        raw = load_dataset("json", data_files={"train": "train.jsonl", "valid": "valid.jsonl"})
        data = raw.map(encode, remove_columns=raw["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train_dl = DataLoader(data["train"], batch_size=4, shuffle=True, collate_fn=collate)
    valid_dl = DataLoader(data["valid"], batch_size=EVAL_BS, collate_fn=collate)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    model, opt, train_dl, valid_dl = accelerator.prepare(model, opt, train_dl, valid_dl)

    model.train()
    for epoch in range(2):
        for batch in train_dl:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        accelerator.print(epoch, run_eval(accelerator, model, valid_dl, EVAL_BS))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out/adapter")
        tok.save_pretrained("out/adapter")


if __name__ == "__main__":
    main()
