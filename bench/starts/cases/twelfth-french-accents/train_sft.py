import pandas as pd
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-7B-Instruct"
CSV = "data/tickets_fr.csv"
OUT = "out/qwen-tickets-fr"

SYSTEM = "Tu es l'agent du service client de la boutique Le Fil Bleu. Réponds en français, poliment et brièvement."


def load_rows():
    df = pd.read_csv(CSV, sep=";", encoding="latin-1")
    df = df[df["statut"] == "clos"]
    df = df.dropna(subset=["question", "reponse"])
    df["question"] = df["question"].str.strip()
    df["reponse"] = df["reponse"].str.strip()
    df = df[df["reponse"].str.len() > 20]
    df = df.drop_duplicates(subset=["question", "reponse"])
    print(len(df), "tickets")
    return df


def to_chat(row):
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": row["question"]},
        ],
        "completion": [{"role": "assistant", "content": row["reponse"]}],
    }


def main():
    df = load_rows()
    dataset = Dataset.from_pandas(df, preserve_index=False)
    dataset = dataset.map(to_chat, remove_columns=dataset.column_names)
    split = dataset.train_test_split(test_size=0.05, seed=42)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )

    args = SFTConfig(
        output_dir=OUT,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        max_length=1024,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        seed=42,
    )

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
