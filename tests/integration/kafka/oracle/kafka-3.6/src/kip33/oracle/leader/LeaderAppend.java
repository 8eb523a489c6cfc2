package kip33.oracle.leader;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Map;
import kafka.log.LogSegment;
import org.apache.kafka.common.TopicPartition;
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
        for (MutableRecordBatch batch : produced.batches())
            append(segment, batch, type, nextOffset);
        segment.onBecomeInactiveSegment();
        segment.close();
        return Map.of("next_offset", nextOffset.value);
    }

    private static void append(
            LogSegment segment,
            MutableRecordBatch batch,
            TimestampType type,
            PrimitiveRef.LongRef nextOffset) {
        ByteBuffer wire = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(wire);
        wire.flip();
        CompressionType codec = batch.compressionType();
        LogValidator validator = new LogValidator(
            MemoryRecords.readableRecords(wire),
            NAME,
            Time.SYSTEM,
            codec,
            codec,
            false,
            RecordBatch.MAGIC_VALUE_V2,
            type,
            Long.MAX_VALUE,
            Long.MAX_VALUE,
            0,
            AppendOrigin.CLIENT,
            MetadataVersion.latest());
        LogValidator.ValidationResult validated = validator.validateMessagesAndAssignOffsets(
            nextOffset, new NoMetrics(), BufferSupplier.NO_CACHING);
        segment.append(
            nextOffset.value - 1,
            validated.maxTimestampMs,
            validated.shallowOffsetOfMaxTimestampMs,
            validated.validatedRecords);
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
