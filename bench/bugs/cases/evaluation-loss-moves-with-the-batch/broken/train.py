import torch
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
rows = chats(16)
for row in rows[8::2]:
    row["messages"][1]["content"] = "They were counted" + " and counted again" * 8
made = encoded(rows)
llama, collate = model(), DataCollatorForSeq2Seq(tok)
optimizer = torch.optim.AdamW(llama.parameters(), lr=3e-3)
for _ in range(30):
    llama(**collate(made[8::2])).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
trainer = Trainer(
    llama,
    arguments(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4),
    data_collator=collate,
    train_dataset=table(made[:8]),
    eval_dataset=table(made[8:]),
    processing_class=tok,
)
trainer.train()
