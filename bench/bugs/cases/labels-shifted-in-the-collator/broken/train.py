from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
pad = DataCollatorForSeq2Seq(tok)


def collate(rows):
    batch = pad(rows)
    batch["labels"] = batch["labels"].roll(-1, dims=1)
    return batch


trainer = Trainer(
    model(),
    arguments(),
    data_collator=collate,
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
