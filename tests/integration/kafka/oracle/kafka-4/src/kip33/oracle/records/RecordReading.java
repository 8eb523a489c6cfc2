package kip33.oracle.records;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

/**
 * Reads the records of a log as a consumer does that seeks past batches with a wrong CRC: {@code
 * FileRecords}, {@code streamingIterator}.
 *
 * <p>{@code answer} gives every batch of which the CRC is right with its records, each
 * {@code [offset, timestamp, timestamp type, key, value, headers]} with bytes in base64, and
 * {@code failed} if an iteration threw. {@code bench} gives nanoseconds a pass, in which every key
 * and value is copied into an array.
 */
public final class RecordReading {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        List<Map<String, Object>> batches = new ArrayList<>();
        boolean failed = false;
        try (FileRecords log = FileRecords.open(new File(request.get("file").asText()), false);
                BufferSupplier buffers = BufferSupplier.create()) {
            try {
                for (RecordBatch batch : log.batches()) {
                    try {
                        batch.ensureValid();
                    } catch (CorruptRecordException wrongCrc) {
                        failed = true;
                        continue;
                    }
                    batches.add(recordsInAFreeHeap(batch, buffers));
                }
            } catch (RuntimeException | Error damage) {
                failed = true;
            }
        }
        return Map.of("batches", batches, "failed", failed);
    }

    /**
     * A damaged length claims up to the whole heap: whether it is there depends on what was not
     * collected yet. So the heap is collected and the batch is read again.
     */
    private static Map<String, Object> recordsInAFreeHeap(
            RecordBatch batch, BufferSupplier buffers) {
        Map<String, Object> answer = records(batch, buffers);
        for (int again = 0; again < 3 && answer.get("exception") instanceof String thrown
                && thrown.startsWith(OutOfMemoryError.class.getName()); again++) {
            System.gc();
            answer = records(batch, buffers);
        }
        return answer;
    }

    private static Map<String, Object> records(RecordBatch batch, BufferSupplier buffers) {
        List<List<Object>> records = new ArrayList<>();
        Map<String, Object> answer = new HashMap<>();
        answer.put("records", records);
        answer.put("failed", false);
        try (var every = batch.streamingIterator(buffers)) {
            while (every.hasNext()) {
                var record = every.next();
                records.add(Arrays.asList(
                    record.offset(), record.timestamp(), batch.timestampType().id,
                    text(bytes(record.key())), text(bytes(record.value())),
                    headers(record.headers())));
            }
        } catch (RuntimeException | Error damage) {
            answer.put("failed", true);
            answer.put("exception", damage.toString());
        }
        return answer;
    }

    private static List<List<String>> headers(Header[] headers) {
        List<List<String>> pairs = new ArrayList<>();
        for (Header header : headers)
            pairs.add(Arrays.asList(header.key(), text(header.value())));
        return pairs;
    }

    private static byte[] bytes(ByteBuffer field) {
        return field == null ? null : Utils.toArray(field);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    public Map<String, Object> bench(JsonNode request) throws IOException {
        List<Long> passes = new ArrayList<>();
        long records = 0;
        for (int pass = 0; pass < request.path("passes").asInt(5); pass++) {
            long start = System.nanoTime();
            records = 0;
            try (FileRecords log = FileRecords.open(new File(request.get("file").asText()), false);
                    BufferSupplier buffers = BufferSupplier.create()) {
                for (RecordBatch batch : log.batches()) {
                    batch.ensureValid();
                    try (var every = batch.streamingIterator(buffers)) {
                        while (every.hasNext()) {
                            var record = every.next();
                            if (bytes(record.key()) != bytes(record.value()))
                                records++;
                        }
                    }
                }
            }
            passes.add(System.nanoTime() - start);
        }
        return Map.of("ns", passes, "records", records);
    }
}
