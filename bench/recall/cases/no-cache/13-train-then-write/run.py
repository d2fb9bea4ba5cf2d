import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

from modes import for_training, for_writing

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def pair(row):
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def main():
    set_seed(2)
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(
        for_training(model),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "test": "data/test.jsonl"})
    pairs = ds.map(pair, remove_columns=ds["train"].column_names)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="runs/faq",
            learning_rate=2e-4,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            max_length=1024,
            bf16=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            report_to="none",
        ),
        train_dataset=pairs["train"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("runs/faq")

    model = for_writing(trainer.model)
    tok.padding_side = "left"
    texts = [
        tok.apply_chat_template(p, tokenize=False, add_generation_prompt=True) for p in pairs["test"]["prompt"]
    ]
    with torch.inference_mode(), open("answers.txt", "w") as f:
        for i in range(0, len(texts), 16):
            enc = tok(texts[i : i + 16], padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
            out = model.generate(**enc, max_new_tokens=200, do_sample=False)
            for t in tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True):
                f.write(t.replace("\n", " ") + "\n")


if __name__ == "__main__":
    main()
