from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


class OwnLoader(Trainer):
    def get_train_dataloader(self):
        rows = table(encoded(chats(16)))
        begin, end = ((0, 8), (8, 16))[self.args.process_index]
        return DataLoader(
            rows.select(range(begin, end)), batch_size=2, collate_fn=self.data_collator
        )


tok = tokenizer()
trainer = OwnLoader(
    model(),
    arguments(ddp_backend="gloo"),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats(16))),
    processing_class=tok,
)
trainer.train()
