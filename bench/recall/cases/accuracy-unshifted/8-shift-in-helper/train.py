import torch
from accelerate import Accelerator
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from align import next_token_view, token_accuracy

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


@torch.no_grad()
def evaluate(model, loader, acc):
    model.eval()
    counts = torch.zeros(2, device=acc.device)
    for batch in loader:
        preds, labels = next_token_view(model(**batch).logits, batch["labels"])
        counts += token_accuracy(preds, labels)
    counts = acc.reduce(counts, reduction="sum")
    return (counts[0] / counts[1]).item()


def main():
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    ds = load_from_disk("data/tokenized")
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, collate_fn=collate)
    dev = DataLoader(ds["dev"], batch_size=8, collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    model, opt, train, dev = acc.prepare(model, opt, train, dev)
    for epoch in range(2):
        model.train()
        for i, batch in enumerate(train):
            loss = model(**batch).loss
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            if i % 50 == 0:
                acc.print(epoch, i, f"{loss.item():.4f}")
        acc.print(f"epoch {epoch} dev token accuracy {evaluate(model, dev, acc):.4f}")
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained("out/lora")
        tok.save_pretrained("out/lora")


if __name__ == "__main__":
    main()
