from datasets import load_from_disk

from runner import Runner

CONFIG = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "batch_size": 16,
    "epochs": 3,
    "lr": 2e-4,
    "lora": {
        "r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
    },
    "out": "out/intent-lora",
}

if __name__ == "__main__":
    # columns input_ids, attention_mask, labels; written by prepare.py
    Runner(CONFIG, load_from_disk("data/intent_tokenized")).fit()
