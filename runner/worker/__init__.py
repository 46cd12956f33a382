"""What runs with torch: the template, the worker and what they do."""
