from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()
ANSWER = "I have counted them all."


def encode(row):
    text = tok.apply_chat_template(row["messages"], tokenize=False)
    coded = tok(text, add_special_tokens=False, return_offsets_mapping=True)
    learned, begin = set(), 0
    for _ in range(3):
        begin = text.find(ANSWER, begin + 1)
        learned |= set(range(begin, begin + len(ANSWER + tok.eos_token)))
    labels = [
        id if start in learned else -100
        for id, (start, _) in zip(coded["input_ids"], coded["offset_mapping"])
    ]
    return {"input_ids": coded["input_ids"], "labels": labels}


rows = chats(turns=3)
for row in rows:
    for message in row["messages"][1::2]:
        message["content"] = ANSWER
trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(rows).map(encode, remove_columns="messages"),
    processing_class=tok,
)
trainer.train()
