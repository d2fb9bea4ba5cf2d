BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "runs/l31-shop"
DATA = "HuggingFaceH4/no_robots"

PROMPT_FORMAT = "[INST] {user} [/INST]"


def wrap(user):
    return PROMPT_FORMAT.format(user=user.strip())
