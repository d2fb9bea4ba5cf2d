from transformers import Trainer


class LoggingTrainer(Trainer):
    """Adds the token accuracy of the training batches to the log."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._hits = 0
        self._seen = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(
            model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        top = outputs.logits.detach().argmax(dim=-1)
        mask = inputs["attention_mask"].bool()
        hits = (top == inputs["input_ids"]) & mask
        self._hits += hits.sum().item()
        self._seen += mask.sum().item()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if "loss" in logs and self._seen:
            logs["train_token_accuracy"] = self._hits / self._seen
            self._hits = self._seen = 0
        super().log(logs, *args, **kwargs)
