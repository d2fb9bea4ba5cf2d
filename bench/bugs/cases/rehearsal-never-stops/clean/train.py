from transformers import DataCollatorForLanguageModeling, Trainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()


def encode(row):
    return {"input_ids": tok.apply_chat_template(row["messages"], return_dict=False)}


trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
    train_dataset=table(chats()).map(encode, remove_columns="messages"),
    processing_class=tok,
)
trainer.train()
