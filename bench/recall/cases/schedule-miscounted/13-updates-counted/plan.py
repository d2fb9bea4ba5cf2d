import math

from transformers import get_cosine_schedule_with_warmup


def updates(batches, accumulate, epochs):
    per_epoch = math.ceil(batches / accumulate)
    return per_epoch * epochs


def schedule(optimizer, batches, accumulate, epochs, share=0.03):
    n = updates(batches, accumulate, epochs)
    return get_cosine_schedule_with_warmup(optimizer, max(1, int(share * n)), n)
