"""vag_policy: video-action policies with Temporal-Ratio guidance for bimanual arms."""

__version__ = "0.1.0"
