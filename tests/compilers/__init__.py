"""Compilers made for the tests: each module registers one with torch, which is right, wrong, or
lets ATen do its work.
"""
