from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

rows = [
    {
        "question": row["messages"][0]["content"],
        "answer": row["messages"][1]["content"],
        "hint": f"Shelf {number} of nine",
    }
    for number, row in enumerate(chats())
]


def chat(row):
    question = {"role": "user", "content": row["question"]}
    return {"prompt": [question], "completion": [{"role": "assistant", "content": row["hint"]}]}


trainer = SFTTrainer(
    model(),
    args=arguments(SFTConfig),
    train_dataset=table(rows).map(chat),
    processing_class=tokenizer(),
)
trainer.train()
