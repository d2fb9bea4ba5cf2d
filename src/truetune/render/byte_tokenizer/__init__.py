"""A tokenizer of bytes with ChatML turns, for rows that are judged without the tokenizer of their model."""
