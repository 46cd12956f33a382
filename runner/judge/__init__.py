"""From facts to outcomes: expectations, proof, waivers, and whether an expectation could have failed."""
