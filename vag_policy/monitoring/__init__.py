"""What a policy's trace says: TR summaries, the phase estimate, the attention heat map. Pure; no torch."""
