"""Rules on the rollouts of trainings by rewards."""
