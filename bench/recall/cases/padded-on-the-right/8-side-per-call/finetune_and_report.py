import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def as_pairs(row):
    return {
        "prompt": [{"role": "user", "content": "Rewrite politely: " + row["rude"]}],
        "completion": [{"role": "assistant", "content": row["polite"]}],
    }


def train(tok, ds):
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
    trainer = SFTTrainer(
        model=model,
        processing_class=tok,
        train_dataset=ds["train"].map(as_pairs, remove_columns=ds["train"].column_names),
        eval_dataset=ds["valid"].map(as_pairs, remove_columns=ds["valid"].column_names),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.05, task_type="CAUSAL_LM"),
        args=SFTConfig(
            "out/polite",
            learning_rate=1e-4,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            warmup_steps=30,
            bf16=True,
            gradient_checkpointing=False,
            max_length=768,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
        ),
    )
    trainer.train()
    trainer.save_model("out/polite")
    return trainer.model.eval()


def report(model, tok, rows, size=16):
    lines = []
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        chats = [as_pairs(r)["prompt"] for r in part]
        texts = [tok.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
        enc = tok(texts, padding=True, padding_side="left", add_special_tokens=False, return_tensors="pt").to(model.device)
        with torch.no_grad():
            out = model.generate(**enc, max_new_tokens=96, do_sample=False, temperature=None, top_p=None, top_k=None)
        for r, t in zip(part, tok.batch_decode(out[:, enc.input_ids.shape[1]:], skip_special_tokens=True)):
            lines.append(f"| {r['rude']} | {t.strip()} |")
    return "\n".join(lines)


if __name__ == "__main__":
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.padding_side = "right"
    ds = load_dataset("json", data_files={s: f"data/{s}.jsonl" for s in ("train", "valid", "test")})
    model = train(tok, ds)
    with open("out/polite/report.md", "w") as f:
        f.write("| in | out |\n|---|---|\n" + report(model, tok, list(ds["test"])))
