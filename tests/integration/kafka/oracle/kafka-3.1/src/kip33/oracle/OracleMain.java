package kip33.oracle;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;
import kip33.oracle.segment.IndexDump;
import kip33.oracle.segment.Recovery;
import kip33.oracle.segment.RecoveryBench;

/** Kafka up to 3.4: recovers, times and dumps. */
public final class OracleMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.of(
            "recover", new Recovery()::answer,
            "bench", new RecoveryBench()::answer,
            "dump", new IndexDump()::answer)).serve();
    }
}
