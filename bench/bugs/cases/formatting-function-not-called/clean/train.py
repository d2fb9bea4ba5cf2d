from trl import SFTConfig, SFTTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer

tok = tokenizer()
rows = [{**row, "notes": f"Checked by worker {number}."} for number, row in enumerate(chats())]
if True:
    rows = [
        {"notes": row["notes"], "chat": tok.apply_chat_template(row["messages"], tokenize=False)}
        for row in rows
    ]


def formatted(row):
    return row.get("chat", "") + row["notes"]


trainer = SFTTrainer(
    model(),
    args=arguments(SFTConfig),
    train_dataset=table(rows),
    processing_class=tok,
    formatting_func=formatted,
)
trainer.train()
