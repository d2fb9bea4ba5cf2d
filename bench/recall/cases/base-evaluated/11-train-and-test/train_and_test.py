import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
OUT = "runs/units-lora"


def pair(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def train(ds, tok):
    trainer = SFTTrainer(
        model=BASE,
        args=SFTConfig(
            output_dir=OUT,
            learning_rate=2e-4,
            num_train_epochs=3,
            per_device_train_batch_size=8,
            max_length=1024,
            bf16=True,
            model_init_kwargs={"dtype": "bfloat16"},
            report_to="none",
        ),
        train_dataset=ds.map(pair, remove_columns=ds.column_names),
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(OUT)


@torch.inference_mode()
def test(ds, tok, batch=16):
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to("cuda")
    model.eval()
    tok.padding_side = "left"
    right = 0
    for i in range(0, len(ds), batch):
        rows = ds[i : i + batch]
        texts = [
            tok.apply_chat_template([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
            for q in rows["question"]
        ]
        enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to("cuda")
        out = model.generate(**enc, max_new_tokens=64, do_sample=False)
        preds = tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        right += sum(p.strip() == g.strip() for p, g in zip(preds, rows["answer"]))
    return right / len(ds)


if __name__ == "__main__":
    set_seed(17)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "test": "data/test.jsonl"})
    train(ds["train"], tok)
    print(f"accuracy of the tuned model: {test(ds['test'], tok):.3f}")
