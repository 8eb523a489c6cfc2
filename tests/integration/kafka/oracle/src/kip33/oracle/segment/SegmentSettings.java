package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.Map;

/** What a request says of one segment: its directory, base offset and index settings. */
record SegmentSettings(File directory, long baseOffset, int intervalBytes, int indexBytes) {
    static SegmentSettings of(JsonNode request) {
        return new SegmentSettings(
            new File(request.get("directory").asText()),
            request.get("base_offset").asLong(),
            request.path("index_interval_bytes").asInt(4096),
            request.path("segment_index_bytes").asInt(10485760));
    }

    /** The segment's file, named as every version of Kafka names it. */
    File log() {
        return new File(directory, String.format("%020d.log", baseOffset));
    }

    /** What goes into a {@code LogConfig}, which is another class before Kafka 3.5. */
    Map<String, Integer> topicConfig() {
        return Map.of(
            "index.interval.bytes", intervalBytes,
            "segment.index.bytes", indexBytes);
    }
}
