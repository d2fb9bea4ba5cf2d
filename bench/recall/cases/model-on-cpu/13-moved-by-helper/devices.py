import torch


def pick():
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def place(thing):
    return thing.to(pick())
