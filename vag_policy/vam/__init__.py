"""The video-action model: video features to actions, with the Temporal Ratio and guidance."""
