"""The whole run in miniature: a few rows memorised on a CPU, then recited from the prompts as they will be served."""
