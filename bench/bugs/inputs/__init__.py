"""What the cases' make.py are made of: rows, tokenizers, tiny models and their runs."""
