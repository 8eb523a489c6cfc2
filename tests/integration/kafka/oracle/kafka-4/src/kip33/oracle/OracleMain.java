package kip33.oracle;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;
import kip33.oracle.log.Expiry;
import kip33.oracle.log.OffsetSearch;
import kip33.oracle.log.RemoteExpiry;
import kip33.oracle.records.RecordReading;
import kip33.oracle.segment.IndexDump;
import kip33.oracle.segment.LiveAppend;
import kip33.oracle.segment.Recovery;
import kip33.oracle.segment.RecoveryBench;
import kip33.oracle.write.BatchWriter;

/** The 4.x process: recovers, appends, expires, searches, dumps, times and writes v2. */
public final class OracleMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.of(
            "recover", new Recovery()::answer,
            "live", new LiveAppend()::answer,
            "expire", new Expiry()::answer,
            "expire_remote", new RemoteExpiry()::answer,
            "search", new OffsetSearch()::answer,
            "bench", new RecoveryBench()::answer,
            "dump", new IndexDump()::answer,
            "records", new RecordReading()::answer,
            "bench_records", new RecordReading()::bench,
            "write", new BatchWriter()::answer)).serve();
    }
}
