from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()


def encode(row):
    question, answer = (message["content"] for message in row["messages"])
    prompt = tok(f"### Question: {question}\n### Answer: ")["input_ids"]
    learned = tok(answer + tok.eos_token)["input_ids"]
    return {"input_ids": prompt + learned, "labels": [-100] * len(prompt) + learned}


trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(chats()).map(encode),
    processing_class=tok,
)
trainer.train()
