"""How a value of a spec shows that it is a template."""


def is_template(value: object) -> bool:
    """Whether a value of a spec is a template."""
    return isinstance(value, str) and "{{" in value
