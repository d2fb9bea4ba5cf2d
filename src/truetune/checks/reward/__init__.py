"""What a reward function pays for."""
