"""Errors that are at once Hyperslab's and the kind that h5py raises in the same place, so that scripts catch them."""

from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError, SelectionError

__all__ = ["FileThereError", "NoFileError", "ReadOnlyError", "WrongKindError", "WrongSelectionError"]


class WrongKindError(InvalidInputError, TypeError):
    """An argument of a kind that h5py would refuse with a TypeError."""


class WrongSelectionError(SelectionError, TypeError):
    """A key that h5py would refuse with a TypeError."""


class ReadOnlyError(InvalidInputError, KeyError):
    """Something was to be changed in a file that was opened to be read. h5py raises a ValueError or a KeyError."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


class NoFileError(NotFoundError, FileNotFoundError):
    """There is no file to open."""


class FileThereError(ConflictError, FileExistsError):
    """There is a file already where one was to be made."""
