"""What several rules on rollouts look at."""
