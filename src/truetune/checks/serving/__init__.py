"""What a server makes of a model."""
