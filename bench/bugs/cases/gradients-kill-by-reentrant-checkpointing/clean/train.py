from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

NAME = "Qwen/Qwen2.5-0.5B"
model = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=2e-4, bf16=True),
    train_dataset=load_from_disk("encoded"),
    data_collator=DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(NAME)),
)
trainer.train()
