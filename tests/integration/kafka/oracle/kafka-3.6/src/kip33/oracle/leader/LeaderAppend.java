package kip33.oracle.leader;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import kafka.log.LogSegment;
import kip33.oracle.log.FixedTime;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Appends batches as a leader of Kafka 3.6 does: one Produce request each, validated, given offsets,
 * then rolled. Leaves the log that the leader wrote and its two indexes.
 */
public final class LeaderAppend {
    private static final TopicPartition NAME = new TopicPartition("oracle", 0);

    public Map<String, Object> answer(JsonNode request) throws IOException {
        File directory = new File(request.get("directory").asText());
        long baseOffset = request.get("base_offset").asLong();
        TimestampType type = TimestampType.forName(request.get("timestamp_type").asText());
        LogConfig config = new LogConfig(
            Map.of("index.interval.bytes", request.get("index_interval_bytes").asInt()));
        LogSegment segment =
            LogSegment.open(directory, baseOffset, config, Time.SYSTEM, false, 0, false, "");
        MemoryRecords produced = MemoryRecords.readableRecords(
            ByteBuffer.wrap(Files.readAllBytes(directory.toPath().resolve("batches"))));
        PrimitiveRef.LongRef nextOffset = PrimitiveRef.ofLong(baseOffset);
        long beforeMaxMs = request.path("before_max_ms").asLong(Long.MAX_VALUE);
        long afterMaxMs = request.path("after_max_ms").asLong(Long.MAX_VALUE);
        JsonNode clocks = request.path("clocks");
        List<Boolean> accepted = new ArrayList<>();
        for (MutableRecordBatch batch : produced.batches()) {
            Time clock = clocks.isMissingNode()
                ? Time.SYSTEM : new FixedTime(clocks.get(accepted.size()).asLong());
            accepted.add(append(segment, batch, type, nextOffset, clock, beforeMaxMs, afterMaxMs));
        }
        segment.onBecomeInactiveSegment();
        segment.close();
        return Map.of("next_offset", nextOffset.value, "accepted", accepted);
    }

    /** Returns whether the leader accepts the timestamps of the batch. */
    private static boolean append(
            LogSegment segment,
            MutableRecordBatch batch,
            TimestampType type,
            PrimitiveRef.LongRef nextOffset,
            Time clock,
            long beforeMaxMs,
            long afterMaxMs) {
        ByteBuffer wire = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(wire);
        wire.flip();
        CompressionType codec = batch.compressionType();
        LogValidator validator = new LogValidator(
            MemoryRecords.readableRecords(wire),
            NAME,
            clock,
            codec,
            codec,
            false,
            RecordBatch.MAGIC_VALUE_V2,
            type,
            beforeMaxMs,
            afterMaxMs,
            0,
            AppendOrigin.CLIENT,
            MetadataVersion.latest());
        long firstOffset = nextOffset.value;
        LogValidator.ValidationResult validated;
        try {
            validated = validator.validateMessagesAndAssignOffsets(
                nextOffset, new NoMetrics(), BufferSupplier.NO_CACHING);
        } catch (RecordValidationException refused) {
            if (!(refused.invalidException() instanceof InvalidTimestampException))
                throw refused;
            nextOffset.value = firstOffset;
            return false;
        }
        segment.append(
            nextOffset.value - 1,
            validated.maxTimestampMs,
            validated.shallowOffsetOfMaxTimestampMs,
            validated.validatedRecords);
        return true;
    }

    private static final class NoMetrics implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() {
        }

        @Override
        public void recordInvalidOffset() {
        }

        @Override
        public void recordInvalidSequence() {
        }

        @Override
        public void recordInvalidChecksums() {
        }

        @Override
        public void recordNoKeyCompactedTopic() {
        }
    }
}
