"""What is there already is written over only for whoever says so."""

from .failed import Failed
from .output import visible
from .usage import Parser

__all__ = ["add_force_option", "there_already"]


def add_force_option(parser: Parser) -> None:
    """`--overwrite` is the word of the commands that record."""
    parser.add_argument(
        "--force", "--overwrite", action="store_true", help="even if there is one already"
    )


def there_already(exc: FileExistsError) -> Failed:
    """Why nothing was written, and the ways out."""
    return Failed(
        f"There is a file {visible(str(exc.filename))} already",
        hint="take another name, or write it anew with --force",
    )
