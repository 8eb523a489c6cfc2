"""All texts that users see are in one file, so that a change of wording is reviewed there."""

from tests.messages.collect import MESSAGES, collected, messages_of

COMMAND = '''
@click.command(epilog="Example: kip33 it")
def it(path):
    """Do it."""
    if not path:
        raise LocationError(f"{path}: a {'new file' if new else 'file'} is " f"expected")
    print_table(("name",), [])


class Other:
    """Not shown."""

    name: str
    """Not shown either."""
'''


def test_the_file_holds_every_text_of_the_source() -> None:
    assert MESSAGES.read_text() == collected(), (
        "wording changed; run `python -m tests.messages.collect` and read the difference"
    )


def test_texts_are_help_errors_and_headings_but_no_docstrings() -> None:
    texts = {"Do it.", "Example: kip33 it", "{}: a {} is expected", "new file", "name"}
    assert messages_of(COMMAND) == texts
