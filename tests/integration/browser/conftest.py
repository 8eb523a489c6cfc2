"""One browser for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.integration.browser.chromium import Chromium, ChromiumMissingError, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    try:
        with chromium(tmp_path_factory.mktemp("profile")) as started:
            yield started
    except ChromiumMissingError as error:
        pytest.skip(str(error))
