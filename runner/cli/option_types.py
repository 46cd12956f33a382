"""Types of option values: functions for ``argparse``, which prints the message of the exception that they raise."""

import argparse
import re


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return number


def factor(text: str) -> float:
    """Return a number from 0.001 to 1000."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.001 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and 1000")
    return number


def over_one(text: str) -> float:
    """Return a factor above 1, and at most 1000."""
    number = factor(text)
    if number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not more than 1")
    return number


def times(text: str) -> int:
    """Return a whole number from 1 to 9999."""
    if re.fullmatch("[1-9][0-9]{0,3}", text) is None:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 9999")
    return int(text)


def natural(text: str) -> int:
    """Return a whole number that is not negative."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0 on")
    return int(text)


def seed(text: str) -> int | str:
    """Return a seed, or ``random``."""
    if text == "random":
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"'{text}' is no seed: write a whole number, or write --shuffle behind the paths")
    return int(text)
