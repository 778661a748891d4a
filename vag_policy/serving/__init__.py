"""Serving a policy: one worker thread, when to plan and on what, and how that goes. No ROS, no torch, no clock."""
