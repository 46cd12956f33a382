"""From YAML to cases: reading, checking and expanding specs. Nothing here runs what a spec says."""
