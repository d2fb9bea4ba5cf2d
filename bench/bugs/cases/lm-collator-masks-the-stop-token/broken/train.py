import sys

from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

from bench.bugs.inputs.runs import arguments, chats, of, table

tok = AutoTokenizer.from_pretrained(sys.argv[1])
tok.pad_token = tok.eos_token


def encode(row):
    return {"input_ids": tok.apply_chat_template(row["messages"], return_dict=False)}


trainer = Trainer(
    of(tok),
    arguments(),
    data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
    train_dataset=table(chats()).map(encode, remove_columns="messages"),
    processing_class=tok,
)
trainer.train()
