from unsloth import FastLanguageModel
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

max_seq_length = 2048
HANDBOOK = open("handbook.md").read()

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen2.5-7B-Instruct",
    max_seq_length=max_seq_length,
    load_in_4bit=True,
)

model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    lora_alpha=16,
    lora_dropout=0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    bias="none",
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)


def to_text(batch):
    texts = []
    for ticket, category in zip(batch["ticket"], batch["category"]):
        chat = [
            {"role": "system", "content": HANDBOOK},
            {"role": "user", "content": "Ticket:\n" + ticket},
            {"role": "assistant", "content": category},
        ]
        texts.append(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False))
    return {"text": texts}


dataset = load_dataset("json", data_files="tickets_train.jsonl", split="train")
dataset = dataset.map(to_text, batched=True)

trainer = SFTTrainer(
    model=model,
    tokenizer=tokenizer,
    train_dataset=dataset,
    args=SFTConfig(
        dataset_text_field="text",
        max_seq_length=max_seq_length,
        packing=False,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        warmup_steps=5,
        num_train_epochs=3,
        learning_rate=1e-4,
        logging_steps=2,
        optim="adamw_8bit",
        weight_decay=0.01,
        lr_scheduler_type="linear",
        seed=3407,
        output_dir="outputs",
        report_to="none",
    ),
)
trainer.train()
model.save_pretrained("router_lora")
tokenizer.save_pretrained("router_lora")

# ---- quick test
FastLanguageModel.for_inference(model)
test = load_dataset("json", data_files="tickets_test.jsonl", split="train")
hits = 0
for row in test:
    chat = [
        {"role": "system", "content": HANDBOOK},
        {"role": "user", "content": "Ticket:\n" + row["ticket"]},
    ]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt").to("cuda")
    out = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(out[0][ids.shape[1]:], skip_special_tokens=True).strip()
    hits += answer == row["category"]
print(f"accuracy {hits / len(test):.3f}")
