"""The one error that a user sees."""


class FvError(Exception):
    """What is wrong, where (file, line, key), and what would be right.

    >>> str(FvError("key is 43 characters long", where="edge.toml:12: private_key", hint="a key has 44"))
    'edge.toml:12: private_key: key is 43 characters long (a key has 44)'
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.what}{hint}"
