"""Bytes and stamps in, an Observation out."""
