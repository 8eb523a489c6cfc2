package kip33.oracle.write;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

/**
 * Writes batches with Kafka's own builders.
 *
 * <p>This class compiles against the 3.x client for v0 and v1 and against the 4.x client for v2. A
 * batch is described by its {@code kind} ({@code records}, {@code empty}, {@code end_transaction} or
 * {@code leader_change}) and its header's values; records are rows of
 * {@code [offset, timestamp, key, value]}; a key or value is a number of bytes (-1 is null) or hex.
 */
public final class BatchWriter {
    private static final byte[] LETTERS = "the quick brown fox jumps over the lazy dog ".getBytes();

    /** Answers the wire bytes, base64, of every batch that the request describes. */
    public List<String> answer(JsonNode request) {
        List<String> written = new ArrayList<>();
        for (JsonNode batch : request.get("batches"))
            written.add(Base64.getEncoder().encodeToString(write(batch)));
        return written;
    }

    private static byte[] write(JsonNode batch) {
        ByteBuffer buffer = switch (batch.path("kind").asText("records")) {
            case "records" -> records(batch);
            case "empty" -> empty(batch);
            case "end_transaction" -> endTransaction(batch);
            case "leader_change" -> leaderChange(batch);
            default -> throw new IllegalArgumentException("no such kind of batch: " + batch);
        };
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static ByteBuffer records(JsonNode batch) {
        ByteBufferOutputStream stream = new ByteBufferOutputStream(512);
        long deleteHorizon = batch.path("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP);
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                stream,
                (byte) batch.get("magic").asInt(),
                Compression.of(CompressionType.forName(batch.path("codec").asText("none"))).build(),
                timestampType(batch),
                batch.get("base_offset").asLong(),
                batch.path("log_append_time").asLong(RecordBatch.NO_TIMESTAMP),
                producerId(batch),
                producerEpoch(batch),
                baseSequence(batch),
                batch.path("transactional").asBoolean(false),
                false,
                leaderEpoch(batch),
                Integer.MAX_VALUE,
                deleteHorizon)) {
            for (JsonNode record : batch.get("records"))
                builder.appendWithOffset(
                    record.get(0).asLong(),
                    record.get(1).asLong(),
                    content(record.get(2), record.get(0).asLong()),
                    content(record.get(3), record.get(0).asLong() + 7));
            if (batch.has("last_offset"))
                builder.overrideLastOffset(batch.get("last_offset").asLong());
            return builder.build().buffer();
        }
    }

    private static ByteBuffer empty(JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer,
            RecordBatch.MAGIC_VALUE_V2,
            producerId(batch),
            producerEpoch(batch),
            baseSequence(batch),
            batch.get("base_offset").asLong(),
            batch.get("last_offset").asLong(),
            leaderEpoch(batch),
            timestampType(batch),
            batch.get("timestamp").asLong(),
            batch.path("transactional").asBoolean(false),
            batch.path("control").asBoolean(false));
        buffer.flip();
        return buffer;
    }

    private static ByteBuffer endTransaction(JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(128);
        MemoryRecords.writeEndTransactionalMarker(
            buffer,
            batch.get("base_offset").asLong(),
            batch.get("timestamp").asLong(),
            leaderEpoch(batch),
            producerId(batch),
            producerEpoch(batch),
            new EndTransactionMarker(
                ControlRecordType.valueOf(batch.get("marker").asText()),
                batch.path("coordinator_epoch").asInt(0)));
        buffer.flip();
        return buffer;
    }

    private static ByteBuffer leaderChange(JsonNode batch) {
        return MemoryRecords.withLeaderChangeMessage(
            batch.get("base_offset").asLong(),
            batch.get("timestamp").asLong(),
            leaderEpoch(batch),
            ByteBuffer.allocate(256),
            new LeaderChangeMessage().setLeaderId(1)).buffer();
    }

    private static TimestampType timestampType(JsonNode batch) {
        if (batch.path("magic").asInt(2) == 0)
            return TimestampType.NO_TIMESTAMP_TYPE;
        return TimestampType.forName(batch.path("timestamp_type").asText("CreateTime"));
    }

    private static long producerId(JsonNode batch) {
        return batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID);
    }

    private static short producerEpoch(JsonNode batch) {
        return (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH);
    }

    private static int baseSequence(JsonNode batch) {
        return batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE);
    }

    private static int leaderEpoch(JsonNode batch) {
        return batch.path("leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH);
    }

    private static byte[] content(JsonNode described, long from) {
        if (described.isTextual())
            return HexFormat.of().parseHex(described.asText());
        int size = described.asInt();
        if (size < 0)
            return null;
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++)
            bytes[i] = LETTERS[(int) Math.floorMod(from * 5 + i, LETTERS.length)];
        return bytes;
    }
}
