"""What STS is asked for, by which keys and by which way, and when it is asked again."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from kip33.errors import LocationError
from kip33.stores import locations
from kip33.stores import settings as store_settings
from kip33.stores.locations import Location
from kip33.stores.s3 import client_arguments, open_bucket
from tests.integration.stores.accounts import EXTERNAL_ID, Account

pytestmark = pytest.mark.integration
BY_ENVIRONMENT = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test set this process's settings of stores."""
    monkeypatch.setattr(store_settings._Process, "settings", None)
    yield
    store_settings.use_settings({})


def test_without_the_role_the_bucket_is_closed(account: Account) -> None:
    settings = account.settings(aws_credentials_provider="")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        open_bucket(settings, "archive").get_file_info(fs.FileSelector("archive"))


ASKED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "as it is set": ({}, {"RoleSessionName": "nightly", "DurationSeconds": "1200"}),
    "nothing but the role": (
        {
            "assumed_role_session_name": "",
            "assumed_role_session_duration": "",
            "assumed_role_external_id": "",
        },
        {"RoleSessionName": "kip33", "DurationSeconds": "3600", "ExternalId": ""},
    ),
    "a duration without a unit is seconds": (
        {"assumed_role_session_duration": "900"},
        {"DurationSeconds": "900"},
    ),
    "less than the whole role": (
        {"assumed_role_policy": '{"Version": "2012-10-17"}'},
        {"Policy": '{"Version": "2012-10-17"}'},
    ),
}


def test_what_sts_is_asked_for(account: Account, subtests: pytest.Subtests) -> None:
    for name, (own, expected) in ASKED.items():
        with subtests.test(name):
            before = len(account.server.asked())
            found = client_arguments(account.settings(**own), "archive")
            [asked], _ = account.asked_since(before)
            said = {"RoleArn": account.roles["trusted"], "ExternalId": EXTERNAL_ID} | expected
            assert {key: asked.form.get(key, "") for key in said} == said
            assert asked.status == 200
            assert {"access_key", "secret_key", "session_token"} <= found.keys()
            assert account.asker.secret_key not in found.values()


def test_keys_of_the_environment_ask_where_the_settings_say_so(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", account.asker.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", account.asker.secret_key)
    settings = account.settings(
        access_key="of-another-bucket",
        secret_key="of-another-bucket",
        assumed_role_credentials_provider=BY_ENVIRONMENT,
    )
    assert "session_token" in client_arguments(settings, "archive")


def through_proxy(account: Account, **own: str) -> dict[str, Any]:
    """Return arguments where STS has a name that only the proxy knows."""
    said = {
        "assumed_role_sts_endpoint": "http://sts.example.invalid",
        "proxy_host": "127.0.0.1",
        "proxy_port": str(account.server.port),
        "proxy_username": "somebody",
        "proxy_password": "hidden/password",
    }
    return client_arguments(account.settings(**(said | own)), "archive")


def test_a_proxy_leads_to_sts_as_well(account: Account) -> None:
    assert "session_token" in through_proxy(account)


def test_a_proxy_that_is_not_there_is_said_without_its_password(account: Account) -> None:
    with pytest.raises(LocationError, match="cannot be assumed: Failed to connect") as said:
        through_proxy(account, proxy_port="9")
    assert "hidden" not in str(said.value)


def test_keys_are_asked_for_again_before_they_end(
    account: Account, process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: clock.now_s)
    monkeypatch.setattr(locations, "time", clock)
    store_settings.use_settings(account.settings())
    log = Location.of("s3a://archive/logs/broker-1/payments-0/00000000000000000000.log")
    before = len(account.server.asked())
    for clock.now_s in (900_000.0, 900_899.0, 900_900.0, 901_799.0, 901_800.0):
        with log.filesystem().open_input_file(log.path) as file:
            assert file.size() > 0
    of_sts, of_s3 = account.asked_since(before)
    assert len(of_sts) == 3
    tokens = [one.session_token for one in of_s3]
    assert len(set(tokens)) == 3
    assert tokens == sorted(tokens, key=tokens.index)  # none that was replaced is used again
