"""Commands with keys of a role: moto's STS gives them, moto's S3 takes them and no others."""

from pathlib import Path

import pytest

from kip33.stores.s3 import open_bucket
from tests.integration.servers.faults import Request
from tests.integration.servers.proxy import FaultProxy
from tests.integration.stores.accounts import Account
from tests.integration.stores.places import Place

pytestmark = pytest.mark.integration
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def place(account: Account, tmp_path: Path) -> Place:
    """Return the bucket as commands reach it, by the role."""
    conf = {f"spark.hadoop.{key}": value for key, value in account.settings().items()}
    filesystem = open_bucket(account.settings(), "archive")
    return Place("s3a", "s3a://archive", filesystem, "archive", tmp_path, conf)


def test_a_build_and_what_verifies_it_run_with_keys_of_the_role_only(
    account: Account, place: Place
) -> None:
    before = len(account.server.asked())
    logs, indexes = f"{place.uri}/logs", f"{place.uri}/indexes"
    built = place.run("build", logs, "--index-dir", indexes, "--format", "json")
    assert built.code == 0, built.err
    assert built.record["by_status"] == {"empty": 1, "invalid": 1, "ok": 9, "truncated": 2}
    verified = place.run("verify", logs, "--index-dir", indexes, "--format", "json")
    assert verified.code == 0, verified.err
    assert verified.record["by_verdict"]["identical"] == 12
    of_sts, of_s3 = account.asked_since(before)
    assert {one.access_key for one in of_sts} == {account.asker.access_key}
    assert len(of_s3) > 100
    assert all(one.session_token for one in of_s3)
    assert account.asker.access_key not in {one.access_key for one in of_s3}
    assert not [one for one in of_s3 if one.status in (400, 401, 403)]


def test_an_sts_that_goes_away_in_mid_build_is_one_line(account: Account, place: Place) -> None:
    port = account.server.port
    with FaultProxy(port) as to_s3, FaultProxy(port) as to_sts:

        def before(request: Request) -> None:
            if request.method == "PUT":  # by the driver: the tasks have not asked for keys yet
                to_sts.refuse()

        to_s3.before = before
        own = {"endpoint": f"http://{to_s3.endpoint}"}
        own["assumed_role_sts_endpoint"] = f"http://{to_sts.endpoint}"
        conf = {f"spark.hadoop.{key}": value for key, value in account.settings(**own).items()}
        ran = place.run(
            *("build", f"{place.uri}/logs", "--index-dir", f"{place.uri}/cut-short"),
            *("--engine", "spark"),
            conf=conf,
        )
    assert ran.code == 1
    assert "cannot be assumed: Could not connect to the endpoint" in ran.line
    assert account.asker.secret_key not in ran.err
    assert not [path for path in place.files("cut-short") if "/commits/" in path]


REFUSED = {
    "a role that trusts others": (
        {"assumed_role_arn": "of others"},
        "cannot be assumed: An error occurred (AccessDenied)",
    ),
    "another external id": (
        {"assumed_role_external_id": "of-somebody-else"},
        "cannot be assumed: An error occurred (AccessDenied)",
    ),
    "a wrong secret": (
        {"secret_key": "wrong-secret"},
        "cannot be assumed: An error occurred (SignatureDoesNotMatch)",
    ),
    "nobody's key": (
        {"access_key": "AKIAWRONGKEY"},
        "cannot be assumed: An error occurred (InvalidClientTokenId)",
    ),
    "an STS that is not there": (
        {"assumed_role_sts_endpoint": NOBODY},
        f'cannot be assumed: Could not connect to the endpoint URL: "{NOBODY}/"; check',
    ),
    "a duration that STS does not know": (
        {"assumed_role_session_duration": "5m"},
        "value: 300, valid min value: 900; check fs.s3a.assumed.role.*",
    ),
    "a role that may nothing": ({"assumed_role_arn": "may nothing"}, "SOURCE cannot be read"),
    "a role that nobody made": ({"assumed_role_arn": "nowhere"}, "SOURCE cannot be read"),
}


def test_a_role_that_is_refused_is_one_line_without_a_key(
    account: Account, place: Place, subtests: pytest.Subtests
) -> None:
    for wrong, (named, said) in REFUSED.items():
        with subtests.test(wrong):
            own = {key: account.roles.get(value, value) for key, value in named.items()}
            conf = {f"spark.hadoop.{key}": value for key, value in account.settings(**own).items()}
            ran = place.run("verify", f"{place.uri}/logs", conf=conf)
            assert ran.code == 2
            assert said in ran.line
            given = [conf[f"spark.hadoop.fs.s3a.{key}.key"] for key in ("access", "secret")]
            assert not [key for key in given if key in ran.line]
