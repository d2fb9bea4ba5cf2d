from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

from families import parts_for

TEMPLATE = "qwen-2.5"
ROLE = {"human": "user", "gpt": "assistant", "system": "system"}


def main():
    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name="unsloth/Qwen2.5-7B-Instruct-bnb-4bit", max_seq_length=2048, load_in_4bit=True
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
    tokenizer = get_chat_template(tokenizer, chat_template=TEMPLATE)
    rows = load_dataset("mlabonne/FineTome-100k", split="train[:5000]")

    def to_text(row):
        chat = [{"role": ROLE[t["from"]], "content": t["value"]} for t in row["conversations"]]
        return {"text": tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False)}

    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows.map(to_text, remove_columns=rows.column_names),
        args=SFTConfig(
            dataset_text_field="text",
            max_length=2048,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            warmup_steps=10,
            num_train_epochs=1,
            learning_rate=2e-4,
            logging_steps=5,
            optim="adamw_8bit",
            seed=3407,
            output_dir="outputs",
            report_to="none",
        ),
    )
    trainer = train_on_responses_only(trainer, **parts_for(TEMPLATE))
    trainer.train()
    model.save_pretrained("qwen_lora")
    tokenizer.save_pretrained("qwen_lora")


if __name__ == "__main__":
    main()
