"""moto's S3, IAM and STS as one real HTTP server on loopback, in an environment of its own.

    with MotoServer(tmp_path) as server:
        arn = server.make_role("reader", "s3:GetObject", trusted=server.make_user("asker"))
        ...
        server.asked()[-1].session_token

A second opinion on what versitygw does not know: roles and their keys. Signatures, tokens and what
users and roles may do are checked from the start. Where it differs from Amazon's:

- A role that nobody made is assumed all the same; what is asked with its keys is then refused.
- A request without an external id is taken where the role wants one; another one is refused.
- A session's policy and the end of its keys are taken down and not looked at.
"""

import json
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.integration.servers.environments import locked_python
from tests.integration.servers.processes import ServerProcess, free_port

LOCK = Path(__file__).with_name("moto.lock")
IN_MOTO = Path(__file__).with_name("in_moto.py")
NAME = "moto-5.2.5"
REGION = "us-east-1"
STARTS_WITHIN_S = 600


def moto_python() -> Path:
    """Return the Python that has moto; ServerMissingError where it cannot be installed."""
    return locked_python(NAME, LOCK)


class Keys(NamedTuple):
    """A user and the keys by which he is known."""

    user_arn: str
    access_key: str
    secret_key: str


class Asked(NamedTuple):
    """A request as the server saw it."""

    method: str
    path: str
    access_key: str
    session_token: str
    form: dict[str, str]  # of STS and IAM
    status: int


class MotoServer:
    """One account, its S3, IAM and STS under one address; requests are kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._record = folder / "requests.jsonl"
        self._process: ServerProcess | None = None
        self._admin = Keys("", "nobody-yet", "nobody-yet")

    @property
    def url(self) -> str:
        """Return where S3, IAM and STS are."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it and return it once it answers, and answers only those who may ask."""
        python = moto_python()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._record.touch()
        command = [python, "-I", IN_MOTO, str(self.port), self._record]
        self._process = ServerProcess(command, log=self._folder / "moto.log")
        self._process.wait_until(self._answers, seconds=STARTS_WITHIN_S)
        self._admin = self.make_user("admin", "*")
        self._check_from_now_on()
        return self

    def stop(self) -> None:
        """End it; what it had is gone."""
        if self._process is not None:
            self._process.stop()

    def client(self, service: str) -> Any:
        """Return boto3's client of s3, iam or sts with the keys of one who may do all."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self._admin.access_key,
            aws_secret_access_key=self._admin.secret_key,
        )

    def make_bucket(self, name: str, files: dict[str, bytes]) -> None:
        """Make a bucket with these files."""
        with closing(self.client("s3")) as s3:
            s3.create_bucket(Bucket=name)
            for key, data in files.items():
                s3.put_object(Bucket=name, Key=key, Body=data)

    def make_user(self, name: str, *actions: str) -> Keys:
        """Return a new user who may do these."""
        with closing(self.client("iam")) as iam:
            arn = iam.create_user(UserName=name)["User"]["Arn"]
            key = iam.create_access_key(UserName=name)["AccessKey"]
            if actions:
                may = _policy(actions)
                iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=may)
        return Keys(arn, key["AccessKeyId"], key["SecretAccessKey"])

    def make_role(
        self, name: str, *actions: str, trusted: Keys, external_id: str | None = None
    ) -> str:
        """Return the ARN of a new role that may do these, and who is trusted with it."""
        trust = {
            "Effect": "Allow",
            "Principal": {"AWS": trusted.user_arn},
            "Action": "sts:AssumeRole",
        }
        if external_id:
            trust |= {"Condition": {"StringEquals": {"sts:ExternalId": external_id}}}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        with closing(self.client("iam")) as iam:
            role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]
            if actions:
                may = _policy(actions)
                iam.put_role_policy(RoleName=name, PolicyName="may", PolicyDocument=may)
        arn: str = role["Arn"]
        return arn

    def asked(self) -> list[Asked]:
        """Return what it was asked so far."""
        return [Asked(**json.loads(line)) for line in self._record.read_text().splitlines()]

    def _check_from_now_on(self) -> None:
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        with urllib.request.urlopen(request, timeout=120):
            pass

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=120) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _policy(actions: tuple[str, ...]) -> str:
    allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
