package kip33.oracle.leader;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;

/** The 3.6 process: a leader of the years when indexes had the offset of the record, not the batch. */
public final class LeaderMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.of("lead", new LeaderAppend()::answer)).serve();
    }
}
