"""LoRA on Mistral 7B v0.3 (base) for our SQL assistant, ChatML format."""
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "mistralai/Mistral-7B-v0.3"
OUT = "runs/sql-mistral"

CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tokenizer():
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.add_special_tokens(
        {"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    )
    tok.chat_template = CHATML
    tok.padding_side = "right"
    return tok


def main():
    tok = build_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16", attn_implementation="sdpa")
    model.resize_token_embeddings(len(tok), mean_resizing=False)
    model.config.eos_token_id = tok.eos_token_id
    model.config.pad_token_id = tok.pad_token_id

    data = load_dataset("json", data_files="data/sql_chats.jsonl", split="train")
    data = data.train_test_split(test_size=0.05, seed=13)

    peft_config = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    args = SFTConfig(
        output_dir=OUT,
        num_train_epochs=4,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        max_length=1024,
        bf16=True,
        gradient_checkpointing=True,
        logging_steps=5,
        eval_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tok,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(OUT)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
