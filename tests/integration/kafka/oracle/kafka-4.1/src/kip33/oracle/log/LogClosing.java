package kip33.oracle.log;

import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Ends a {@code UnifiedLog}: as a broker that stops, or without any write to its files. */
final class LogClosing {
    static void asABrokerThatStops(UnifiedLog log) {
        log.flush(true);
        log.close();
    }

    static void withoutAWrite(UnifiedLog log) {
        log.closeHandlers();
    }
}
