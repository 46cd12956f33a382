"""The table of the functions that the reader calls from below."""

from runner.language.authoring.calls import call, of_value
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.reading import Rules
from runner.language.authoring.statements import read_body

RULES = Rules(evaluate=evaluate, call=call, call_of=of_value, read_body=read_body)
