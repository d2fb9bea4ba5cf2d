from transformers import DataCollatorForSeq2Seq, GPT2Config, GPT2LMHeadModel, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer

tok = tokenizer()
shape = {"n_embd": 32, "n_layer": 2, "n_head": 4}
settings = arguments(
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False, "preserve_rng_state": False},
)
trainer = Trainer(
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tok), **shape)),
    settings,
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
