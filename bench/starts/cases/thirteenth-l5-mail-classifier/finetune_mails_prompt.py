LABELS = ["billing", "delivery", "warranty", "account", "other"]
PROMPT = (
    "Sort the following mail of a customer into one of these categories: "
    + ", ".join(LABELS)
    + ".\n\nMail:\n{mail}\n\nCategory:"
)
