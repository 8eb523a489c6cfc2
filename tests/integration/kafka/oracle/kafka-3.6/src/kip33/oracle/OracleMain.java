package kip33.oracle;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;
import kip33.oracle.leader.LeaderAppend;
import kip33.oracle.log.Expiry;
import kip33.oracle.log.OffsetSearch;
import kip33.oracle.segment.IndexDump;
import kip33.oracle.segment.Recovery;
import kip33.oracle.segment.RecoveryBench;

/** Kafka 3.6: recovers, leads, expires, searches, times and dumps. */
public final class OracleMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.of(
            "recover", new Recovery()::answer,
            "lead", new LeaderAppend()::answer,
            "expire", new Expiry()::answer,
            "search", new OffsetSearch()::answer,
            "bench", new RecoveryBench()::answer,
            "dump", new IndexDump()::answer)).serve();
    }
}
