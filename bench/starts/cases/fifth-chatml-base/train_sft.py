import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "meta-llama/Llama-3.1-8B"
OUT = "outputs/norvia-desk"

# the base model has no chat template, so we bring ChatML
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def get_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_special_tokens(
        {
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "eos_token": "<|im_end|>",
            "pad_token": "<|finetune_right_pad_id|>",
        }
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def get_model(tokenizer):
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.resize_token_embeddings(len(tokenizer))
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def main():
    tokenizer = get_tokenizer()
    model = get_model(tokenizer)
    data = load_dataset("json", data_files="dialogs.jsonl", split="train")
    data = data.train_test_split(test_size=0.05, seed=7)

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        bias="none",
        task_type="CAUSAL_LM",
    )
    args = SFTConfig(
        output_dir=OUT,
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
