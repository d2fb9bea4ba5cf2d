HEAD = "### Instruction:\n{instruction}\n\n### Response:\n"


def prompt_text(instruction):
    return HEAD.format(instruction=instruction.strip())


def training_text(row, eos):
    return prompt_text(row["instruction"]) + row["response"].strip() + eos
