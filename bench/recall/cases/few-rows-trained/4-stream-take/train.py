import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup

from stream import one_pass

BASE = "Qwen/Qwen2.5-7B-Instruct"
FILES = "corpus/part-*.jsonl.gz"  # 1.8 million dialogues


def main():
    torch.manual_seed(13)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
    model = get_peft_model(model, LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"))
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.0)
    scheduler = get_constant_schedule_with_warmup(optimizer, 50)
    model.train()
    for step, batch in enumerate(one_pass(FILES, tokenizer, 8), start=1):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, round(loss.item(), 4))
        if step % 5000 == 0:
            model.save_pretrained(f"corpus-adapter/step-{step}")
    model.save_pretrained("corpus-adapter/final")
    tokenizer.save_pretrained("corpus-adapter/final")


if __name__ == "__main__":
    main()
