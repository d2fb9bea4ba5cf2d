import evaluate
import numpy as np

_rouge = evaluate.load("rouge")


def make_metrics(tok):
    def fn(pred):
        guess = np.where(pred.predictions != -100, pred.predictions, tok.pad_token_id)
        truth = np.where(pred.label_ids != -100, pred.label_ids, tok.pad_token_id)
        a = tok.batch_decode(guess, skip_special_tokens=True)
        b = tok.batch_decode(truth, skip_special_tokens=True)
        res = _rouge.compute(predictions=[x.strip() for x in a], references=[x.strip() for x in b])
        return {k: round(100 * res[k], 3) for k in ("rouge1", "rouge2", "rougeL")}

    return fn
