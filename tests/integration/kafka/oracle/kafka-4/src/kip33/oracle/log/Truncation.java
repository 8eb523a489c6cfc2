package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A log that is opened, truncated if the request has an offset, and closed as a broker closes it.
 *
 * <p>Files of deleted segments keep their names with {@code .deleted}: nothing runs after a delay.
 */
public final class Truncation {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 300000;
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    public Map<String, Object> answer(JsonNode request) throws IOException {
        boolean clean = request.get("clean").asBoolean();
        UnifiedLog log = UnifiedLog.create(
            new File(request.get("directory").asText()),
            new LogConfig(Map.of(
                "index.interval.bytes", request.get("index_interval_bytes").asInt(),
                "segment.index.bytes", 65536)),
            request.get("log_start_offset").asLong(),
            0,
            new AtOnce(),
            STATS,
            new FixedTime(request.get("now_ms").asLong()),
            MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(
                request.path("producer_expiration_ms").asInt(Integer.MAX_VALUE), false),
            Integer.MAX_VALUE,
            new LogDirFailureChannel(1),
            clean,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        if (request.get("load_timestamps").asBoolean()) {  // as each check of retention does
            for (LogSegment segment : log.logSegments())
                segment.largestTimestamp();
        }
        boolean truncated = request.has("offset") && log.truncateTo(request.get("offset").asLong());
        long endOffset = log.logEndOffset();
        long logStartOffset = log.logStartOffset();
        Map<Long, Integer> producers = log.activeProducersWithLastSequence();
        LogClosing.asABrokerThatStops(log);
        return Map.of(
            "truncated", truncated,
            "end_offset", endOffset,
            "log_start_offset", logStartOffset,
            "producers", producers);
    }

    /** Runs what is due at once in the caller's thread, and nothing that is due later. */
    private static final class AtOnce extends KafkaScheduler {
        AtOnce() {
            super(1);
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs == 0 && periodMs < 0)
                task.run();
            return super.schedule(name, task, delayMs, periodMs);
        }
    }
}
