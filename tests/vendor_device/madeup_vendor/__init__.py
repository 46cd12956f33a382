"""A package of a vendor that is made up for the tests."""
