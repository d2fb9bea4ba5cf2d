"""Rows that are token ids already: caches of trainers, read with a tokenizer and its template."""
