from transformers import AutoModelForSequenceClassification, AutoTokenizer

NAMES = ["billing", "delivery", "returns", "account", "other"]


def load_classifier(name="FacebookAI/xlm-roberta-large", device="cuda"):
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(
        name,
        num_labels=len(NAMES),
        id2label=dict(enumerate(NAMES)),
        label2id={n: i for i, n in enumerate(NAMES)},
    )
    # fits on the small card this way
    model = model.half().to(device)
    return model, tokenizer
