HEAD = "Below is a question about our products.\n\n"


def question_form(question):
    return f"{HEAD}### Instruction:\n{question}\n\n### Response:\n"
