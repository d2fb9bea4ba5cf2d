import torch.nn.functional as F
from transformers import DataCollatorForSeq2Seq, Trainer

from bench.bugs.inputs.runs import arguments, chats, encoded, model, table, tokenizer


class OwnLoss(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        losses = F.cross_entropy(
            outputs.logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none"
        )
        counts = (labels[:, 1:] != -100).sum(1)
        loss = (losses.sum(1) / counts).mean() / self.args.gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss


tok = tokenizer()
trainer = OwnLoss(
    model(),
    arguments(gradient_accumulation_steps=2),
    data_collator=DataCollatorForSeq2Seq(tok),
    train_dataset=table(encoded(chats())),
    processing_class=tok,
)
trainer.train()
