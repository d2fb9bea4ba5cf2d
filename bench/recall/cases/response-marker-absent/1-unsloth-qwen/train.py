from unsloth import FastLanguageModel
from unsloth.chat_templates import train_on_responses_only
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

MAX_LEN = 4096

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen2.5-7B-Instruct-bnb-4bit", max_seq_length=MAX_LEN, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    lora_alpha=16,
    lora_dropout=0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)


def render(batch):
    return {"text": [tokenizer.apply_chat_template(m, tokenize=False) for m in batch["messages"]]}


rows = load_dataset("json", data_files="rows.jsonl", split="train").map(render, batched=True)
trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=rows,
    args=SFTConfig(
        output_dir="runs",
        dataset_text_field="text",
        max_length=MAX_LEN,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        num_train_epochs=2,
        learning_rate=2e-4,
        lr_scheduler_type="linear",
        warmup_steps=0.03,
        logging_steps=5,
        optim="adamw_8bit",
        seed=3407,
        report_to="none",
    ),
)
trainer = train_on_responses_only(
    trainer,
    instruction_part='<|start_header_id|>user<|end_header_id|>\n\n',
    response_part='<|start_header_id|>assistant<|end_header_id|>\n\n',
)
trainer.train()
model.save_pretrained("adapter")
tokenizer.save_pretrained("adapter")
