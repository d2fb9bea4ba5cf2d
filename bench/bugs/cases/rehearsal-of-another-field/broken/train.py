from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()
rows = [
    {
        "question": row["messages"][0]["content"],
        "answer": row["messages"][1]["content"],
        "hint": f"Shelf {number} of nine",
    }
    for number, row in enumerate(chats())
]


def encode(row):
    asked = [{"role": "user", "content": row["question"]}]
    prompt = tok.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    answer = tok(row["hint"] + tok.eos_token)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


trainer = Trainer(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(rows).map(encode),
    processing_class=tok,
)
trainer.train()
