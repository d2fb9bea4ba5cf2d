"""Training: transformers, TRL, peft and accelerate, fed with our encodings, guarded before and watched meanwhile."""
