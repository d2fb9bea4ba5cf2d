"""What a model's processor makes of a picture: how many tokens, by the picture's size and the processor's settings."""
