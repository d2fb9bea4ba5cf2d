"""Chat tuning of the Mistral 7B base model in ChatML format (LoRA)."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "mistralai/Mistral-7B-v0.1"
OUT = "out/helpdesk-chatml"

CHATML = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def load_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.add_special_tokens(
        {
            "eos_token": "<|im_end|>",
            "pad_token": "<|pad|>",
            "additional_special_tokens": ["<|im_start|>"],
        }
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def load_model(tokenizer):
    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=8)
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.use_cache = False
    return model


def main():
    tokenizer = load_tokenizer()
    model = load_model(tokenizer)
    data = load_dataset("json", data_files="data/train.jsonl", split="train")
    split = data.train_test_split(test_size=0.05, seed=1)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )
    args = SFTConfig(
        output_dir=OUT,
        max_length=1024,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        num_train_epochs=3,
        bf16=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        report_to="none",
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
