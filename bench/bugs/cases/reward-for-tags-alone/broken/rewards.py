import re

FORM = re.compile(r"<answer>.*</answer>")


def form(completions, **kwargs):
    return [float(bool(FORM.fullmatch(one[0]["content"]))) for one in completions]
