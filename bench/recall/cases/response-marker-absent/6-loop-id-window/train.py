import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from torch.utils.data import DataLoader

from rows import Dialogues, collate

BASE = "mistralai/Mistral-7B-Instruct-v0.3"
EPOCHS = 2


def load_model(name):
    base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).to("cuda")
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(base, config)


def main():
    torch.manual_seed(21)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.unk_token
    model = load_model(BASE)
    loader = DataLoader(
        Dialogues("dialogues.jsonl", tokenizer), batch_size=4, shuffle=True, collate_fn=collate(tokenizer.pad_token_id)
    )
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.0)
    total = EPOCHS * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    model.train()
    for epoch in range(EPOCHS):
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    model.save_pretrained("dialogue-adapter")
    tokenizer.save_pretrained("dialogue-adapter")


if __name__ == "__main__":
    main()
