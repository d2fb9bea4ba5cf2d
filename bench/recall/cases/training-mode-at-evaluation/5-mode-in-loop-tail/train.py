import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluate import perplexity
from rows import build_loader

BASE = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
EPOCHS = 3


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(19)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    train = build_loader("train.jsonl", tokenizer, 8)
    valid = build_loader("valid.jsonl", tokenizer, 8, shuffle=False)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.0)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    for epoch in range(EPOCHS):
        model.train()
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} ppl {perplexity(model, valid, accelerator):.3f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("smol-adapter", save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained("smol-adapter")


if __name__ == "__main__":
    main()
