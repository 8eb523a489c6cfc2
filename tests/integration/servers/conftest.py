"""The servers' fixtures, for their own tests."""

from tests.integration.servers.fixtures import (  # noqa: F401
    ha_hdfs_server,
    hdfs_server,
    s3_proxy,
    s3_server,
    spark_cluster,
)
