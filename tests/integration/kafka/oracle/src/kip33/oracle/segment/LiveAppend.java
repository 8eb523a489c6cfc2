package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;

/**
 * Appends the batches of a file {@code batches}, one by one, to a new segment and rolls it: what an
 * uninterrupted broker of 3.9.1, 4.0.1 or later leaves.
 */
public final class LiveAppend {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        SegmentSettings settings = SegmentSettings.of(request);
        Path source = settings.directory().toPath().resolve("batches");
        try (Partition partition = new Partition(settings)) {
            MemoryRecords records =
                MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(source)));
            int appended = 0;
            for (MutableRecordBatch batch : records.batches()) {
                ByteBuffer wire = ByteBuffer.allocate(batch.sizeInBytes());
                batch.writeTo(wire);
                wire.flip();
                partition.append(batch.lastOffset(), MemoryRecords.readableRecords(wire));
                appended++;
            }
            partition.roll();
            return Map.of("batches", appended);
        }
    }
}
