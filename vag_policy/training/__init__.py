"""Training: losses, recipes, the trainer."""
