"""Keys of a role, from a security token service (STS) that pyarrow's client cannot ask."""

from collections.abc import Mapping

from kip33.errors import LocationError


def assumed_keys(
    arn: str,
    *,
    session_name: str,
    seconds: int,
    external_id: str | None,
    base: Mapping[str, str],
    endpoint: str | None,
    region: str | None,
) -> dict[str, str]:
    """Return `access_key`, `secret_key` and `session_token` of the role, good for `seconds`.

    `base` are the keys that ask, empty for the AWS client's own. LocationError, one line without a
    key, where boto3 is missing or STS refuses.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise LocationError(
            f"{arn}: assuming this role needs boto3: pip install 'kip33[s3]'"
        ) from error
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    try:
        client = boto3.client(
            "sts",
            endpoint_url=endpoint,
            region_name=region or "us-east-1",
            aws_access_key_id=base.get("access_key"),
            aws_secret_access_key=base.get("secret_key"),
            aws_session_token=base.get("session_token"),
        )
        asked = {"RoleArn": arn, "RoleSessionName": session_name, "DurationSeconds": seconds}
        keys = client.assume_role(**asked, **({"ExternalId": external_id} if external_id else {}))
    except (BotoCoreError, ClientError) as error:
        raise LocationError(f"{arn}: this role cannot be assumed: {error}") from error
    given = keys["Credentials"]
    return {
        "access_key": given["AccessKeyId"],
        "secret_key": given["SecretAccessKey"],
        "session_token": given["SessionToken"],
    }
