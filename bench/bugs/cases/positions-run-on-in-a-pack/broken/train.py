import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, table, tokenizer

tok = tokenizer()


def pack(rows):
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    document = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    batch = {
        key: torch.tensor([[one for row in rows for one in row[key]]])
        for key in ("input_ids", "labels")
    }
    batch["attention_mask"] = (document[:, None] == document[None]).tril()[None, None]
    batch["position_ids"] = torch.arange(len(document))[None]
    return batch


shape = {"n_embd": 32, "n_layer": 2, "n_head": 4}
trainer = Trainer(
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tok), **shape)),
    arguments(remove_unused_columns=False),
    data_collator=pack,
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
