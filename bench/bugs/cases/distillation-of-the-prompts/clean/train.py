import torch
from trl.experimental.gkd import GKDConfig, GKDTrainer

from bench.bugs.inputs.runs import arguments, chats, model, table, tokenizer


class MyTrainer(GKDTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        read = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        student = model(**read).logits
        with torch.no_grad():
            teacher = self.teacher_model(**read).logits
        loss = self.generalized_jsd_loss(
            student[:, :-1], teacher[:, :-1], inputs["labels"][:, 1:], beta=self.beta
        )
        return (loss, {}) if return_outputs else loss


teacher = model(seed=1)
trainer = MyTrainer(
    model(),
    teacher,
    args=arguments(GKDConfig, max_new_tokens=8, beta=0.2),
    train_dataset=table(chats()),
    processing_class=tokenizer(),
)
trainer.train()
