"""Never initialised."""


def is_available() -> bool:
    return False
