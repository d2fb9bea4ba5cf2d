from transformers import Trainer


class MeanLossTrainer(Trainer):
    """For losses that are a mean over the micro batch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False
