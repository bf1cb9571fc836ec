"""The lab's one error. Its own, not fv's: what runs in a guest has the standard library and pyroute2 only."""


class LabError(Exception):
    """What is wrong, where, and what would be right."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        where_part = f"{where}: " if where else ""
        hint_part = f" ({hint})" if hint else ""
        super().__init__(f"{where_part}{what}{hint_part}")
        self.what = what
        self.where = where
        self.hint = hint
