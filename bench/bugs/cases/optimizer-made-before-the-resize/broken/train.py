import torch
from transformers import DataCollatorForSeq2Seq, Trainer, get_constant_schedule

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()
llama = model()
tok.add_tokens(["<call>"], special_tokens=True)
optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-3)
llama.resize_token_embeddings(len(tok))
trainer = Trainer(
    llama,
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
    optimizers=(optimizer, get_constant_schedule(optimizer)),
)
trainer.train()
