"""The texts of all problems of specs and other files of the user, by their codes: what was read, and what to type instead.

``$name`` is an argument of the problem, and ``<? ... ?>`` is left out where an argument in it is empty. Of several hints the first one is
used whose arguments are there. A code ``unknown-WHAT`` without an entry is that of a word that is in no table.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

_NEAR = "did you mean '$near'?"
_ALLOWED = "allowed: $allowed"

_UNKNOWN = ("unknown $what '$word'<? in $place?>", _NEAR, _ALLOWED, "no $what is defined here")

TEXTS: Mapping[str, Sequence[str]] = {
    # -- texts of other parts of the program: expectations, steps, targets, profiles, capabilities
    **dict.fromkeys(["meaning", "expectation", "step", "target", "capability-argument", "step-without-reference"], ("$message", "$hint")),
    # -- files
    "unreadable-file": ("cannot be read: $reason", "check the path and its permissions"),
    "unreadable-folder": ("cannot be read: $reason", "check its permissions"),
    "not-a-regular-file": ("is not a regular file", "$article is a text file"),
    "too-large-file": ("is $size bytes; at most $limit are read", "$spec is one claim: split it", "split it"),
    "endless-file": ("is more than $limit bytes; at most $limit are read", "$spec is one claim: split it", "split it"),
    "binary-file": ("is a binary file: it contains a NUL byte", "$article is UTF-8 text"),
    "not-utf-8": ("is not UTF-8: byte $byte cannot be decoded", "save the file as UTF-8"),
    "not-utf-8-but-16": ("is not UTF-8: it begins with a UTF-16 byte order mark", "save the file as UTF-8"),
    "foreign-line-end": (
        "the character $name is a line end for some parsers only",
        'write it as an escape in a double-quoted string: "$escape"',
    ),
    "empty-file": ("the file is empty", "$form", "a spec needs at least summary, backends, function, inputs and expect"),
    "other-file": ("is not $article<?: expected a map, found $value?>", "$form"),
    "link-out-of-the-tree": (
        "this $what is reached through a link that leads out of $tree",
        "put a copy there instead of the link, or name the real path on the command line",
    ),
    "folder-loop": ("this folder is a link to one above it", "remove the link"),
    "character-in-a-file-name": (
        "the character $character in the name of a spec",
        "the name is part of the ids of its cases: rename the file",
    ),
    "repeated-id": ("the case id '$id' stands in $other too", "rename one of the files"),
    # -- YAML
    "yaml-syntax": ("YAML syntax: $problem", "check the indentation and the quotes"),
    "yaml-open-quote": ("YAML syntax: $problem", "the quoted text from line $line has no closing quote"),
    "yaml-open-list": ("YAML syntax: $problem", "the list from line $line has no ']', or a ',' is missing"),
    "yaml-open-map": ("YAML syntax: $problem", "the map from line $line has no '}', or a ',' is missing"),
    "yaml-escape": ("YAML syntax: $problem", r"in double quotes a backslash begins an escape: write \\, or use single quotes"),
    "yaml-block": ("YAML syntax: $problem", "the text begins on the line below the | or >"),
    "yaml-syntax-directive": ("YAML syntax: $problem", "remove the line that begins with %"),
    "yaml-colon": ("YAML syntax: $problem", "check the indentation, and put quotes around a value that contains ': '"),
    "yaml-alias-syntax": ("YAML syntax: $problem", "put quotes around a value that begins with * or &"),
    "yaml-special-character": ("YAML syntax: $problem", "put quotes around a value that begins with a special character"),
    "yaml-unquoted-template": ("YAML syntax: $problem", 'put quotes around it: "{{ ... }}"'),
    "yaml-open-template": ("an unquoted {{", 'put quotes around it: "{{ ... }}"'),
    "yaml-control-character": ("YAML syntax: a control character", "write it as an escape in a double-quoted string"),
    "yaml-tab": ("a tab cannot indent YAML", "use spaces"),
    "yaml-directive": ("a directive (%YAML or %TAG)", "specs are YAML 1.2: remove the line"),
    "yaml-second-document": ("a second document", "a file contains one $what: remove the '---'"),
    "yaml-tag": ("the tag '$tag' is not part of the language", "write the plain value"),
    "yaml-long-number": ("a number of more than $digits digits", "put quotes around it if it is text"),
    "yaml-alias-in-itself": ("the alias '*$name' is inside its own anchor", "write the value out"),
    "yaml-unknown-alias": ("the alias '*$name' has no anchor above it", "write the value out"),
    "yaml-alias-as-key": ("an alias as a key", "a key is one plain word"),
    "yaml-bad-key": ("a key that is a list or a map", "a key is one plain word"),
    "yaml-too-deep": ("nested more than $depth deep", "no part of the language is that deep"),
    "yaml-too-large": (
        "more than <?$values values?><?$characters characters?> after expansion of aliases",
        "use a matrix instead of aliases",
    ),
    "yaml-merge-key": ("the merge key '<<'", "YAML 1.2 has no merge keys: write the keys out"),
    "yaml-repeated-key": ("the key '$word' is repeated", "it is first on line $line"),
    # -- form: the schema
    "not-allowed": ("nothing may stand here", "remove it"),
    "wrong-type": ("expected $types<? (or one $template)?>, found $value", "for example $example<?. $use?>", "$use"),
    "number-for-text": ("expected $types, found $value", "put it in quotes: it is text"),
    "wrong-text": ("$value is not a valid $title", "for example $examples", "it must match $pattern"),
    "wrong-value": ("expected $expected, found $value", "otherwise remove the key"),
    "missing-key": ("$title needs the key '$word'", "$use"),
    "incomplete": ("'$word' requires '$other'", "add '$other'"),
    "none-of": ("$title needs one of $keys",),
    "not-one-of": ("$title needs exactly one of $keys; found $named", _NEAR),
    "unknown-key": (
        "unknown $kind '$word'<? in $title?>",
        "write it beside $beside",
        "did you mean '$typo'?",
        _ALLOWED,
        "no $kind is defined here",
    ),
    "key-of-specs": ("'$word' is a key of specs, not of defaults: write it in each spec", "defaults have $allowed"),
    "unknown-word": ("unknown $kind '$word'<? in $title?>", _NEAR, _ALLOWED, "no $kind is defined here"),
    "bad-name": ("'$word' is not a valid name here", "it must match $pattern"),
    "repeated-entry": ("$value is repeated", "remove it"),
    "empty": ("$title is empty", "$use"),
    "too-few": ("$title needs at least $least $unit", "$use"),
    "too-many-keys": ("$title takes one key, found $keys", "write each in its own entry"),
    "too-many-entries": ("$title takes at most $most entries", "$use"),
    "out-of-range": ("$value is out of range: <?at least $minimum?><?at most $maximum?><?more than $exclusiveMinimum?>",),
    # -- Python
    "python-syntax": ("Python syntax: $reason", "this is Python, exactly as in a module"),
    "python-syntax-in-text": ("Python syntax: $reason (line $line of this text)", "write Python as a literal block: |"),
    "python-unreadable": ("this Python cannot be read: $reason", "write it more simply"),
    "python-too-deep": ("this Python cannot be read: it is nested too deep", "write it more simply"),
    "undefined-name": ("undefined name '$name'", _NEAR, "define it here or in prelude:, or import it"),
    "undefined-module": ("undefined name '$name'", "import it"),
    "undefined-key": ("undefined name '$name'", "a key of the matrix is read as params.$name"),
    "undefined-value": (
        "undefined name '$name'",
        "pass a value of let or a result as an argument, {ref: $name}, or as a parameter of a script",
    ),
    "no-function": ("no function: the Python has no top-level def", "write def fn(...): ..."),
    "several-functions": ("several top-level defs: $names", "add entry: $last", "move the others to prelude"),
    "entry-without-python": ("'entry' without Python in 'function'", "entry selects one of several top-level defs"),
    "arity": ("$name takes $takes, $inputs given", "one input for each argument"),
    "needs-keywords": ("$name needs $keywords by keyword", "inputs are given by position: give it a default, or remove the '*'"),
    # -- names of Python that are looked up without executing it
    "unknown-prelude-name": (
        "no name '$word' in the prelude",
        "write builtins.$builtin",
        _NEAR,
        "the prelude defines $allowed",
        "define it in prelude:",
    ),
    "no-package": (
        "no package '$word' is installed",
        _NEAR,
        "install it, put its folder on PYTHONPATH, or name it under requires: {module: ...}",
    ),
    "module-below-a-module": ("'$first' is a module and has no module '$path'", "write $first"),
    "no-module": ("no module '$word' in $package", _NEAR, "name a module of the package, or install another version"),
    "unknown-module-name": ("no name '$word' in $module", _NEAR, "it may have moved: search torch's source"),
    "reference-as-a-path": ("no name '$name' in the prelude", "write call: {ref: $name}"),
    "too-general-exception": (
        "almost any failure raises $type: this cannot fail",
        "name the class that is raised, with match: words of its message; a misspelt name raises too",
    ),
    # -- inputs
    "misplaced-key": ("'$word' does not go with '$kind'", "it goes with $kinds"),
    "no-range": ("no range of sizes: from $least to $most", "min must be less than max; a dimension of one size is not dynamic"),
    "repeat-outside-of-a-list": ("'repeat' outside of a list of inputs", "it stands in a list: inputs, or args of a call"),
    "wrong-device": (
        "the backend '$backend' has no device '$device'",
        "without 'device' each backend uses its own; or write a spec for the backends whose device is $device",
    ),
    # -- options, counters, metrics
    "unknown-option": (
        "unknown $kind '$name'",
        _NEAR,
        "'$word' is a group of options: $members",
        "'$word' is an option of $home",
        "no torch since 2.11 has it",
    ),
    "unknown-counter": (
        "unknown counter '$name'",
        "did you mean '$near'?; a counter outside the tables needs unlisted: true",
        "known in $in_space: $known; a counter outside the tables needs unlisted: true",
        "namespaces: $spaces; a counter outside the tables needs unlisted: true",
        "a counter outside the tables needs unlisted: true",
    ),
    "counter-without-namespace": (
        "the counter '$name' has no namespace",
        "did you mean '$near'?; a counter outside the tables needs unlisted: true",
        "'$space' is a namespace: write $space.NAME; a counter outside the tables needs unlisted: true",
        "'$metric' is a metric; a counter outside the tables needs unlisted: true",
        "namespaces: $spaces; a counter outside the tables needs unlisted: true",
    ),
    "unlisted-counter-of-zero": (
        "the counter '$name' may not be expected to be 0: its name is made at run time, and a misspelt one is always 0",
        _NEAR,
        "expect at least 1",
    ),
    "condition-without-set": ("a condition without 'set'", "write a list: $kind: [{when: {...}, set: {...}}]"),
    "guard-filter-as-option": ("unknown $kind '$name'", "it is an option of torch.compile: compile: {options: {$name: {ref: NAME}}}"),
    "no-guard-filter": (
        "compile option $name is $value",
        "write {ref: NAME}: a function that takes the guards and returns for each whether it is kept",
    ),
    "aoti-option": ("'$name' in the options of compile", "torch.compile then calls AOTInductor, which specs do not cover: remove it"),
    "option-value": ("$kind $name is $value", _NEAR, "allowed: $types"),
    "conflicting-options": (
        "$section $name is $value here and $other in the $origin ($place)",
        "if the spec means it, write $override: [{set: {$name: $value}, override: true}]",
        "leave $name out of the spec, or exclude the $origin: exclude: [{backend: $backend, reason: ...}]",
    ),
    "nul-character": ("a NUL character in $name", "no environment variable can hold one"),
    "options-beside-mode": ("'options' beside 'mode': torch.compile accepts only one of them", "use config"),
    "address-beside-services": ("'$name' beside 'services'", "remove it: the runner sets the address of the case's server"),
    "no-service": (
        "'remote_cache' without a service",
        "add services: [redis]; otherwise the case would use any server that listens on this machine",
    ),
    # -- matrix
    "reserved-key": ("the matrix key '$word' is reserved", "reserved keys: $allowed"),
    "repeated-value": ("the value $value of '$name' is repeated", "give each a different id"),
    "too-many-cases": (
        "a matrix of <?$count?><?more than $beyond?> cases; at most $most are expanded",
        "use fewer values, or write several specs",
    ),
    "too-many-exclusions": ("$count exclusions; at most $most are compared", "write a list of values in one exclusion"),
    "excludes-an-empty-list": ("an empty list for '$word': this excludes nothing", "remove the key"),
    "excludes-nothing": ("'$word' is never $value: this excludes nothing", "it is one of $allowed"),
    "no-cases": ("every point of the matrix is excluded: the spec has no cases", "exclude less"),
    **{
        code: (
            f"the matrix key '$word' changes nothing but the seed of its cases: {where}",
            'write "{{ $word }}" in place of its value, or params.$word in Python; to only repeat cases, name the key $repeat',
        )
        for code, where in {
            "unused-key": "nothing uses it",
            "key-of-texts": "only summary and covers use it",
            "key-of-patterns": "nothing uses it, because a regular expression or a FileCheck directive takes no template",
        }.items()
    },
    # -- templates
    "template-statement": ("a statement ({%) in a template", "only {{ expressions }} are allowed"),
    "template-comment": ("a comment ({#) in a template", "only {{ expressions }} are allowed"),
    "template-without-end": ("template syntax: an expression that does not end", "write {{ name }} or a comparison of names"),
    "template-syntax": ("template syntax: $reason", "write {{ name }} or a comparison of names"),
    "template-too-long": ("an expression of $length characters", "at most $most are allowed: use the matrix"),
    "template-refused": ("$what in a template", "names, attributes, comparisons and + - * / // % are allowed"),
    "template-underscore": ("the $what '$name' in a template", "${what}s that begin with '_' are not allowed"),
    "template-no-attributes": ("the attribute '$name' of a value without attributes", "only maps in the matrix, and facts, have some"),
    "template-comparison": ("cannot compare $left with $right in a template", "both sides need the same type"),
    "template-arithmetic": ("$formula in a template: $reason", "check the matrix values"),
    "template-too-large": ("the result of '$symbol' in a template is too large", "check the matrix values"),
    "template-no-number": ("'$symbol' on $value in a template", "arithmetic needs numbers; strings and lists cannot be repeated"),
    "template-list-in-text": ("a list or a map inside a text", "a value that is exactly one {{ expression }} keeps its type"),
    "template-long-result": ("a result of $length characters", "at most $most are allowed"),
    "name-in-a-shared-file": ("unknown name '$name' in a template", "a file shared by many specs can use backend, device and facts"),
    "facts-for-a-list": ("a list or a map of facts", "facts are texts and numbers: write them in its entries"),
    "facts-before-the-machine": (
        "facts are known only on the machine that runs the case",
        "use facts in options, inputs and arguments; use when: for expectations that depend on the machine",
    ),
    # -- named values
    **{
        f"before-{what}": ("the name '$name' is not available yet", why)
        for what, why in {
            "functions": "functions are made after the prelude",
            "let": "let makes it at line $line, and it can be used only after that",
            "compiled": "the compiled function is made after let and the inputs",
            "inputs": "the inputs are made after let",
            "its-step": "it is the result of the step at line $line, and it can be used only after that",
            "any-result": "the first step with a result stands at line $line",
            "any-reference": "the first step with an eager reference stands at line $line",
        }.items()
    },
    "name-of-what-is-made": (
        "'$name' cannot be named here",
        "these options are needed to make it; use a function of the prelude or a value of let",
    ),
    "name-of-a-part": ("the name '$name' is taken", "it is a part of the case; choose another"),
    "name-of-a-result": ("the name '$name' is taken", "it is the step's own result or its reference"),
    "repeated-name": ("the name '$name' is given twice", "it stands first at line $line"),
    "reference-within-a-value": (
        "{ref: $name} within what is only data: it would be compared as a map",
        "compare that part by itself: {NAME.0: {ref: OTHER}}",
    ),
    "reference-of-a-spy": (
        "{ref: $name} within what is only data: it would be compared as a map",
        "write the value: entries of a spy are compared with plain values",
    ),
    "beside-around": (
        "'$word' does not go with 'around'",
        "the hook of around calls the original itself, and returns what the caller gets",
    ),
    "no-method-of-an-object": ("not an object and a method", "write [{ref: NAME}, METHOD]"),
    "no-dotted-path": ("'$name' is no dotted path", "name it where its callers look it up: package.module.name"),
    "spy-without-calls": ("nothing is expected of the spy '$name'", "add an expectation calls: {of: $name}"),
    # -- steps and expectations
    "expects-nothing": ("the spec expects nothing", "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim"),
    "expect-beside-steps": ("'expect' beside 'steps'", "write expect in each step"),
    "functions-beside-function": ("'functions' beside 'function'", "put all of them into functions"),
    "step-below-the-last": (
        "the step '$kind' below a $last",
        "move the $last to the end: what follows would see what it did to caches, counters and parameters",
    ),
    "repeated-step": ("the step '$kind' cannot be repeated", "$instead"),
    "step-without-child": ("the step '$kind' spawns no child", "exit goes with $kinds"),
    "step-called-once": ("the step '$kind' cannot be repeated", "$expectation goes with $kinds"),
    "step-without-result": ("the step '$kind' has no result", "results have $kinds"),
    "never-reached": ("this value is never reached: the one above it holds everywhere", "only the last may be without when"),
    "not-expected": ("the spec expects no '$kind'", "it expects $expected", "it expects nothing"),
    "unchanged-option": (
        "the control sets $section $name to $value, as the case does ($origin)",
        "a control is a patch under which the case fails",
    ),
    "unchanged-kernel": ("the control sets $name as the case does", "a control is a patch under which the case fails"),
    # -- conditions
    "bad-range": ("$message",),
    "other-backends": ("this condition never holds: no backend of the spec is $accepted", "the spec has $names"),
    "other-devices": ("this condition never holds: no backend of the spec is on $accepted", "the spec has $names"),
    # -- sources and targets
    "beside-source": ("'$word' beside 'source'", "the cases of a source have functions and inputs of their own"),
    "key-of-the-source": ("the matrix key '$word' is the source's", "remove it, or rename it"),
    "expectation-of-samples": ("'$kind' of each sample of an operator", "write close: {to: eager}"),
    "template-in-dtypes": (
        "a template in the dtypes of a source",
        "write all dtypes in the list: each is a case of its own, and a part of its id",
    ),
    "no-samples-of-dtype": ("no operator has samples of $dtype", "dtypes: $dtypes"),
    "offline-without-targets": ("the backend '$backend' without targets", "write targets: [$example] in place of backends"),
    "triton-without-targets": ("'triton' without 'targets'", "write targets: [$example] in place of backends"),
    "control-without-triton": ("a control of 'triton' without 'triton'", "remove it"),
    "expectation-without-targets": ("'$kind' without 'targets'", "it is for kernels that are compiled for targets"),
    "stage-without-targets": ("'stage' without 'targets'", "remove it: generated code has no stages"),
    # -- backends
    "repeated-backend": ("the backend '$name' is defined twice", "it is first defined at $first"),
    "backend-loop": ("'$name' joins itself through '$other'", "break the loop"),
    "only-tags-without-joins": (
        "only_tags selects specs of joined backends, and this one joins none",
        "add joins: [NAME], or remove only_tags",
    ),
    "device-without-module": (
        "'$device' is no device of torch itself, and no module registers it",
        "torch brings $brought; module: NAME registers another device",
    ),
    "module-of-a-known-device": (
        "torch itself brings the device '$device', so no module registers it",
        "remove module, or name the device that the module registers, or in compile: {backend: NAME} the compiler",
    ),
    "unknown-operator": ("ATen of the installed torch has no operator '$name'", _NEAR, "write it as aten.NAME, without an overload"),
    "no-proof": (
        "the backend '$name' has no proof that it ran",
        "add proof: {graphs: {min: 1}}, or compiles: false if it compiles nothing",
    ),
    "no-claims-file": ("no such file: $path", "its path is relative to this file"),
    "unclaimable": ("the operator suite has no operator '$name'", "ids have it after op=, such as $near"),
    "bad-pattern": ("the pattern is not a regular expression: $reason",),
    "capability-without-argument": ("the capability '$name' needs an argument that is text", 'write {$name: "$example"}'),
    "capability-with-argument": ("the capability '$name' takes no argument", "write $name"),
    # -- upstream tests
    "upstream-test-without-instances": ("the upstream test '$name' has no instances", "remove the bracket"),
    "no-upstream-instance": ("'$name' names no instance of the upstream test", "its instances: $instances"),
    # -- ledgers, audits
    "gone-case": ("1 case is gone: $cases", "bring it back, or write the ledger again with 'list --update'"),
    "gone-cases": ("$count cases are gone: $cases", "bring them back, or write the ledger again with 'list --update'"),
    "not-weak": ("$kind fails with every mutant: it is not weak", "remove 'weak'"),
    # -- waivers
    "expired-waiver": ("the waiver of '$cases' ended on $until and is void: $issue", "remove it, or set a later date"),
    "waiver-without-case": ("the waiver of '$cases' is for none of the $count cases that were read", "only * and ? are special"),
    "not-a-date": ("'$value' is not a date: $reason", "write year, month and day: 2027-03-01"),
    "failure-without-phase": ("a failure of the type '$kind' has no phase", "remove it, or write one of the types $types"),
    "failure-without-numbers": ("a failure of the type '$kind' has no numbers", "remove it, or write one of the types $types"),
    "waived-error": (
        "an error cannot be waived: a case with an error claims nothing",
        "if the spec is wrong, correct it; if the machine lacks something, add requires",
    ),
    "bad-pattern-of-a-waiver": ("the pattern is not a regular expression: $reason", "escape ( ) [ ] { } . * + ? with \\"),
    "waives-any-failure": (
        "the pattern matches unrelated messages: it would waive any failure",
        "write words or numbers from the message of this defect, as shown in a run's report",
    ),
    "waives-any-of-a-type": (
        "the pattern matches the fixed text of all messages of the type '$kind': it would waive any of them",
        "write words or numbers from the message of this defect, as shown in a run's report",
    ),
    "waives-any-number": (
        "the pattern names no number of '$kind': it would waive any wrong answer",
        "add the greatest error, 'error: 0.37', which covers a factor of 4 up and down; 'waive RUN' writes it",
    ),
}


def text_of(code: str, arguments: Mapping[str, str | int]) -> tuple[str, str]:
    """Return the message and the hint of a problem; the hint may be empty."""
    texts = TEXTS.get(code, _UNKNOWN)
    if texts is _UNKNOWN:
        arguments = {"what": code.removeprefix("unknown-").replace("-", " "), **arguments}
    message = _OPTIONAL.sub(lambda part: part[1] if _has(part[1], arguments) else "", texts[0])
    hint = next((hint for hint in texts[1:] if _has(_OPTIONAL.sub("", hint), arguments)), "")
    hint = _OPTIONAL.sub(lambda part: part[1] if _has(part[1], arguments) else "", hint)
    point = f" (at {arguments['point']})" if "point" in arguments else ""
    return Template(message).substitute(arguments) + point, Template(hint).substitute(arguments)


_OPTIONAL = re.compile(r"<\?(.*?)\?>")


@functools.cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(Template(text).get_identifiers())


def _has(text: str, arguments: Mapping[str, str | int]) -> bool:
    return all(arguments.get(name) for name in _names(text))


# -- words for values -------------------------------------------------------------------------------------------------------

UNITS: Mapping[str, str] = {"string": "characters", "array": "entries", "object": "keys"}
"""What a length counts, by the type of JSON."""

_TYPES = {
    **dict.fromkeys(["object", "map"], "a map"),
    **dict.fromkeys(["array", "list"], "a list"),
    "string": "text",
    "str": "a text",
    **dict.fromkeys(["integer", "int"], "a whole number"),
    **dict.fromkeys(["number", "float"], "a number"),
    **dict.fromkeys(["boolean", "bool"], "true or false"),
}


def shown_types(types: Sequence[str]) -> str:
    """Return types of JSON or of options, and literals, as text."""
    return " or ".join(_TYPES.get(name, name) for name in types)


def shown(value: Any) -> str:
    """Return a value of a file in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return json.dumps(value)
        case str():
            return f"the text '{value[:60]}'"
        case dict():
            return "a map"
        case list():
            return "a list"
    return f"the number {value!s:.40}"


def span(least: int, most: int | None) -> str:
    """Return a number of arguments as text; None for any number."""
    if most is None:
        return f"at least {span(least, least)}"
    count = "1 argument" if most == 1 else f"{most} arguments"
    return count if least == most else f"{least} to {count}"


TEMPLATE_PARTS: Mapping[str, str] = {
    "Call": "a call",
    "BitOr": "a filter",
    "Is": "a test ('is')",
    "IsNot": "a test ('is')",
    "Pow": "the operator '**'",
    "Subscript": "an index",
    "List": "a list",
    "Tuple": "a tuple",
    "Dict": "a map",
}
"""What templates do not allow, by the node of Python's syntax."""

KINDS: Mapping[str, tuple[str, str]] = {
    "spec": ("a spec", "a spec is a map with the keys summary, backends, function, inputs and expect"),
    "defaults": ("a file of defaults", "defaults are a map with keys such as config, tags, context and prelude"),
    "backends": ("a file of backends", "backends are a map by name: NAME: {summary: TEXT, device: cuda, proof: {graphs: {min: 1}}}"),
    "claims": ("a file of claims", 'claims are a map of types to operators: float32: [add, "nn.functional.*"]'),
    "waivers": (
        "a waiver file",
        "write waivers: [{cases: GLOB, failure: {type: counter, match: TEXT}, reason: TEXT, issue: LINK or ID, until: 2027-03-01}]",
    ),
    "profile": (
        "a profile",
        "a profile is a map with the keys profile, version, summary, torch and levels: {P0: {required: [{cases: GLOB, backend: NAME}]}}",
    ),
    "conformance": (
        "a file of settings",
        "settings are a map with the keys paths, backends, waivers and profile: {paths: [specs], waivers: [waivers.yaml]}",
    ),
    "lab": ("the file of a lab", "a lab is a map with the keys lab and nodes: {NAME: {count: 1, vendor: nvidia, torch: 2.13.0+cu130}}"),
}
"""The kinds of files by their schemas: the kind with its article, and how such a file looks."""
