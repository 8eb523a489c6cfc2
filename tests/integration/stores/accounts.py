"""A bucket that opens to the keys of a role only, and who may ask for these."""

from pathlib import Path
from typing import NamedTuple

from kip33.demo import make_archive
from tests.integration.servers.moto import REGION, Asked, Keys, MotoServer

PROVIDER = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
EXTERNAL_ID = "of-the-archives-owner"


class Account(NamedTuple):
    """The bucket `archive` with the demo archive, a user and roles."""

    server: MotoServer
    asker: Keys
    roles: dict[str, str]  # what is special about a role -> its ARN

    def settings(self, **own: str) -> dict[str, str]:
        """Return S3A's settings of the role; `own` ones over them, `_` for a dot."""
        settings = {
            "endpoint": self.server.url,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "access.key": self.asker.access_key,
            "secret.key": self.asker.secret_key,
            "attempts.maximum": "2",
            "aws.credentials.provider": PROVIDER,
            "assumed.role.arn": self.roles["trusted"],
            "assumed.role.external.id": EXTERNAL_ID,
            "assumed.role.session.name": "nightly",
            "assumed.role.session.duration": "20m",
            "assumed.role.sts.endpoint": self.server.url,
            "assumed.role.sts.endpoint.region": REGION,
        }
        given = {key.replace("_", "."): value for key, value in own.items()}
        return {f"fs.s3a.{key}": value for key, value in (settings | given).items()}

    def asked_since(self, before: int) -> tuple[list[Asked], list[Asked]]:
        """Return what STS and what S3 were asked after the first `before` requests."""
        asked = self.server.asked()[before:]
        of_sts = [one for one in asked if one.form.get("Action") == "AssumeRole"]
        of_s3 = [one for one in asked if one.path.startswith("/archive")]
        return of_sts, of_s3


def make_account(server: MotoServer, tree: Path) -> Account:
    """Return the account with all it needs; the demo archive is made in `tree`."""
    make_archive(tree)
    logs = {
        f"logs/{path.relative_to(tree)}": path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }
    server.make_bucket("archive", logs)
    asker = server.make_user("asker", "sts:AssumeRole")
    other = server.make_user("other")
    trusted = server.make_role("reader", "s3:*", trusted=asker, external_id=EXTERNAL_ID)
    roles = {
        "trusted": trusted,
        "of others": server.make_role("barred", "s3:*", trusted=other),
        "may nothing": server.make_role("poor", trusted=asker),
        "nowhere": f"{trusted}-of-nobody",
    }
    return Account(server, asker, roles)
