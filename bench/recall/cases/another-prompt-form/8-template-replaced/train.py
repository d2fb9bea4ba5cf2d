import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL, OUT = "Qwen/Qwen2.5-1.5B", "out/helpdesk-15"
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ '### Instruction:\n' + m['content'] + '\n\n' }}"
    "{% else %}{{ '### Response:\n' + m['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}"
)


def pair(row):
    return {
        "prompt": [{"role": "user", "content": row["instruction"]}],
        "completion": [{"role": "assistant", "content": row["response"]}],
    }


if __name__ == "__main__":
    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.chat_template = TEMPLATE
    ds = load_dataset("json", data_files={"train": "data/train.jsonl", "dev": "data/dev.jsonl"})
    ds = ds.map(pair, remove_columns=["instruction", "response"])
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16),
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            OUT, learning_rate=2e-4, num_train_epochs=2, per_device_train_batch_size=8, warmup_steps=40,
            bf16=True, max_length=1024, eval_strategy="epoch", save_strategy="epoch", logging_steps=10,
        ),
    )
    trainer.train()
    trainer.save_model(OUT)
    tok.save_pretrained(OUT)
