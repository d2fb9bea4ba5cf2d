from peft import LoraConfig, get_peft_model
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
adapter = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
tuned = get_peft_model(model(), adapter)
trainer = Trainer(
    tuned,
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
