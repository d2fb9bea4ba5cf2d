from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

NAME = "Qwen/Qwen2.5-0.5B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="float32")
rows = load_dataset("json", data_files="chats.jsonl", split="train")

args = SFTConfig(
    output_dir="out",
    max_length=4096,
    learning_rate=1e-6,
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    bf16=True,
    assistant_only_loss=True,
)
trainer = SFTTrainer(model=model, args=args, train_dataset=rows, processing_class=tokenizer)
trainer.train()
trainer.save_model("out/final")
