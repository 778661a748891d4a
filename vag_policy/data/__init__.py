"""Bags, datasets and what both need."""
