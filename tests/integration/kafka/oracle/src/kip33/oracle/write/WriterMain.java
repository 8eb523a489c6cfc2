package kip33.oracle.write;

import java.io.IOException;
import java.util.Map;
import kip33.oracle.lines.LineServer;

/** The 3.x process: it only writes, because Kafka 4.x writes neither v0 nor v1. */
public final class WriterMain {
    public static void main(String[] args) throws IOException {
        new LineServer(Map.of("write", new BatchWriter()::answer)).serve();
    }
}
