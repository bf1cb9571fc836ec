"""Configuration to plan: pure functions on frozen structs. What the host looks like is passed in (`facts.py`)."""
