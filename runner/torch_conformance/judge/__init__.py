"""Judges facts: expectations, proof, waivers, and the audit, which finds expectations that could
not have failed.
"""
