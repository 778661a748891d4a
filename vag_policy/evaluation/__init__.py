"""Rollouts, their logs, and reports."""
