"""What runs inside the user's training process: it looks, measures, and writes a record.

It may live in another environment than truetune's own: these modules import the standard library, numpy, and the torch,
transformers, peft and trl of that environment, and of truetune `errors` and `parsing` alone.
`truetune.auditing` reads the record.
"""
