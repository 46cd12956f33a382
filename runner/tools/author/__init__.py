"""For authors of specs."""
