import torch
from accelerate import PartialState
from transformers import BitsAndBytesConfig


def own_card():
    return {"": PartialState().local_process_index}


def four_bit():
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
