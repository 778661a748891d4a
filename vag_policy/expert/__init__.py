"""A scripted expert on privileged state: it shows how the tasks are done. Needs mink; no policy uses it."""
