package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.Map;
import org.apache.kafka.storage.internals.log.LogConfig;

/** What a request says of one segment: its directory, base offset and index settings. */
record SegmentSettings(File directory, long baseOffset, int intervalBytes, int indexBytes) {
    static SegmentSettings of(JsonNode request) {
        return new SegmentSettings(
            new File(request.get("directory").asText()),
            request.get("base_offset").asLong(),
            request.path("index_interval_bytes").asInt(4096),
            request.path("segment_index_bytes").asInt(10485760));
    }

    LogConfig logConfig() {
        return new LogConfig(Map.of(
            "index.interval.bytes", intervalBytes,
            "segment.index.bytes", indexBytes));
    }
}
