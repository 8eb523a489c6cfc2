package kip33.oracle;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;
import kip33.oracle.log.Expiry;
import kip33.oracle.log.OffsetSearch;
import kip33.oracle.log.RemoteCopy;
import kip33.oracle.log.RemoteExpiry;
import kip33.oracle.log.Rolling;
import kip33.oracle.log.Truncation;
import kip33.oracle.records.RecordReading;
import kip33.oracle.segment.IndexDump;
import kip33.oracle.segment.LiveAppend;
import kip33.oracle.segment.Recovery;
import kip33.oracle.segment.RecoveryBench;
import kip33.oracle.write.BatchWriter;

/** The 4.x process: recovers, appends, expires, searches, dumps, times and writes v2. */
public final class OracleMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.ofEntries(
            verb("recover", new Recovery()::answer),
            verb("live", new LiveAppend()::answer),
            verb("expire", new Expiry()::answer),
            verb("expire_remote", new RemoteExpiry()::answer),
            verb("copy_remote", new RemoteCopy()::answer),
            verb("should_roll", new Rolling()::shouldRoll),
            verb("append", new Rolling()::append),
            verb("search", new OffsetSearch()::answer),
            verb("truncate", new Truncation()::answer),
            verb("bench", new RecoveryBench()::answer),
            verb("dump", new IndexDump()::answer),
            verb("records", new RecordReading()::answer),
            verb("bench_records", new RecordReading()::bench),
            verb("write", new BatchWriter()::answer))).serve();
    }

    private static Map.Entry<String, LineServer.Verb> verb(String name, LineServer.Verb verb) {
        return Map.entry(name, verb);
    }
}
