from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


def centred(module, inputs, output):
    return output - output.mean(dim=(-1,), keepdim=True)


tok = tokenizer()
llama = model()
llama.model.norm.register_forward_hook(centred)
trainer = Trainer(
    llama,
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
