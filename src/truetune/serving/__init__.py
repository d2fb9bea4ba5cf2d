"""What a server makes of a model: serve-check, the start commands, the ladder of its effect."""
