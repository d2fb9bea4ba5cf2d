PARTS = {
    "llama-3.1": (
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "qwen-2.5": (
        "<|im_start|>user\n",
        "<|im_start|>assistant\n",
    ),
}


def parts_for(template):
    user, assistant = PARTS[template]
    return {"instruction_part": user, "response_part": assistant}
