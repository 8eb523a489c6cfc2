package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RollParams;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * When Kafka begins a new segment: {@code LogSegment.shouldRoll} for one batch, and the segments of a
 * whole {@code UnifiedLog} to which batches are appended, one append each.
 */
public final class Rolling {
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    /** Whether each case rolls: a segment of {@code batches}, and a set that is to be appended. */
    public List<Boolean> shouldRoll(JsonNode request) throws IOException {
        File directory = new File(request.get("directory").asText());
        List<Boolean> answers = new ArrayList<>();
        for (JsonNode one : request.get("cases")) {
            FixedTime time = new FixedTime(one.get("created_ms").asLong());
            LogConfig config = new LogConfig(Map.of(
                "segment.ms", one.get("segment_ms").asLong(),
                "index.interval.bytes", one.get("index_interval_bytes").asInt(),
                "segment.index.bytes", one.get("segment_index_bytes").asInt()));
            long baseOffset = one.get("base_offset").asLong();
            try (LogSegment segment = LogSegment.open(directory, baseOffset, config, time, 0, false)) {
                for (MutableRecordBatch batch : batches(one.get("batches").asText()))
                    segment.append(batch.lastOffset(), alone(batch));
                answers.add(segment.shouldRoll(new RollParams(
                    one.get("segment_ms").asLong(),
                    one.get("segment_bytes").asInt(),
                    one.get("max_timestamp").asLong(),
                    one.get("last_offset").asLong(),
                    one.get("size_bytes").asInt(),
                    one.get("now_ms").asLong())));
                segment.deleteIfExists();
            }
        }
        return answers;
    }

    /** The bounds and the index files of all segments after every batch was appended. */
    public List<Map<String, Object>> append(JsonNode request) throws IOException {
        File directory = new File(request.get("directory").asText());
        LogConfig config = new LogConfig(Map.of(
            "internal.segment.bytes", request.get("segment_bytes").asInt(),
            "max.message.bytes", Integer.MAX_VALUE,
            "segment.ms", request.get("segment_ms").asLong(),
            "index.interval.bytes", request.get("index_interval_bytes").asInt(),
            "segment.index.bytes", request.get("segment_index_bytes").asInt()));
        long start = request.get("base_offset").asLong();
        Files.createFile(directory.toPath().resolve(String.format("%020d.log", start)));
        UnifiedLog log = UnifiedLog.create(
            directory, config, start, start, new KafkaScheduler(1), STATS, new FixedTime(0), 300000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true,
            Optional.empty());
        for (MutableRecordBatch batch : batches(request.get("batches").asText()))
            log.appendAsFollower(alone(batch), 0);
        List<Map<String, Object>> found = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            found.add(Map.of(
                "base_offset", segment.baseOffset(),
                "size_bytes", segment.size(),
                "offset_entries", segment.offsetIndex().entries(),
                "time_entries", segment.timeIndex().entries()));
        LogClosing.withoutAWrite(log);
        return found;
    }

    private static Iterable<MutableRecordBatch> batches(String file) throws IOException {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(file)))).batches();
    }

    private static MemoryRecords alone(MutableRecordBatch batch) {
        ByteBuffer wire = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(wire);
        wire.flip();
        return MemoryRecords.readableRecords(wire);
    }
}
