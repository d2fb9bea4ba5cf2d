import re

FORM = re.compile(r"<answer>\s*[\w.-]+.*</answer>")


def form(completions, **kwargs):
    return [float(bool(FORM.fullmatch(one[0]["content"]))) for one in completions]
