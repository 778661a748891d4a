"""Robots as numbers, models and simulated worlds."""
