from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


class OwnLoader(Trainer):
    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=2, collate_fn=self.data_collator)
        return loader


tok = tokenizer()
trainer = OwnLoader(
    model(),
    arguments(ddp_backend="gloo"),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats(16))),
    processing_class=tok,
)
trainer.train()
