package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * The log of a directory {@code <topic>-<partition>}, as a broker loads it after a clean shutdown.
 *
 * <p>Indexes that lie there are believed, a segment without {@code .index} is recovered. The high
 * watermark is the log's end, the clock stands still, and nothing runs in the background.
 */
final class OpenedLog implements AutoCloseable {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 300000;
    private static final int PRODUCER_ID_EXPIRATION_MS = 86400000;
    private static final int PRODUCER_ID_EXPIRATION_CHECK_MS = 600000;
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    private final UnifiedLog log;
    private final List<LogSegment> segments;

    OpenedLog(JsonNode request) throws IOException {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "cleanup.policy", request.path("cleanup_policy").asText("delete"),
            "retention.ms", request.path("retention_ms").asLong(-1),
            "retention.bytes", request.path("retention_bytes").asLong(-1)));
        request.path("settings").fields().forEachRemaining(
            one -> settings.put(one.getKey(), one.getValue().asText()));
        LogConfig config = new LogConfig(settings);
        log = UnifiedLog.create(
            new File(request.get("directory").asText()),
            config,
            request.path("log_start_offset").asLong(0),
            0,
            new KafkaScheduler(1),  // never started: it ignores every task
            STATS,
            new FixedTime(request.get("now_ms").asLong()),
            MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, false),
            PRODUCER_ID_EXPIRATION_CHECK_MS,
            new LogDirFailureChannel(1),
            true,
            Optional.empty(),
            new ConcurrentHashMap<>(),
            request.has("uploaded"),  // tiered storage
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        segments = List.copyOf(log.logSegments());
    }

    UnifiedLog log() {
        return log;
    }

    /** The largest timestamp of each segment that was loaded, by base offset. */
    Map<Long, Long> largestTimestamps() throws IOException {
        Map<Long, Long> largestTimestamps = new LinkedHashMap<>();
        for (LogSegment segment : segments)
            largestTimestamps.put(segment.baseOffset(), segment.largestTimestamp());
        return largestTimestamps;
    }

    void deleteOldSegments() throws IOException {
        log.deleteOldSegments();
    }

    /** The segments that are left. */
    Set<Long> baseOffsets() {
        return log.logSegments().stream().map(LogSegment::baseOffset).collect(Collectors.toSet());
    }

    /** The offset and the timestamp of the answer, null for "unknown". */
    List<Long> fetchOffsetByTimestamp(long target) {
        return log.fetchOffsetByTimestamp(target, Optional.empty())
            .timestampAndOffsetOpt()
            .map(record -> List.of(record.offset, record.timestamp))
            .orElse(null);
    }

    /**
     * Removes what was deleted, as the scheduler would after {@code file.delete.delay.ms}, and closes
     * the rest as it is: a clean close would write to the indexes.
     */
    @Override
    public void close() throws IOException {
        List<LogSegment> left = log.logSegments();
        for (LogSegment segment : segments) {
            if (!left.contains(segment))
                segment.deleteIfExists();
        }
        LogClosing.withoutAWrite(log);
    }
}
