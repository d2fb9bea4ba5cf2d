from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()


def encode(row):
    prompt = tok.apply_chat_template(
        row["messages"][:1], add_generation_prompt=True, return_dict=False
    )
    answer = tok(row["messages"][1]["content"])["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(chats()).map(encode, remove_columns="messages"),
    processing_class=tok,
)
trainer.train()
