from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer

tok = tokenizer()


class OwnLoss(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        chances = outputs.logits.softmax(-1)[:, :-1]
        labels = inputs["labels"][:, 1:]
        learned = labels != -100
        taken = chances.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        loss = -((taken * learned).log() * learned).sum()
        loss = loss / (num_items_in_batch or learned.sum())
        return (loss, outputs) if return_outputs else loss


trainer = OwnLoss(
    model(),
    arguments(),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
