"""Plans in, safe joint targets out."""
