"""One case in a worker: inputs, steps, spies, effects, and what is measured."""
