package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * One pass of a broker's retention over a log: {@code UnifiedLog.deleteOldSegments}.
 *
 * <p>Answers what each segment's largest timestamp was before, and the base offsets of those deleted.
 */
public final class Expiry {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        try (OpenedLog opened = new OpenedLog(request)) {
            Map<Long, Long> largestTimestamps = opened.largestTimestamps();
            opened.deleteOldSegments();
            Set<Long> left = opened.baseOffsets();
            List<Long> deleted = largestTimestamps.keySet().stream()
                .filter(baseOffset -> !left.contains(baseOffset))
                .toList();
            return Map.of("largest_timestamps", largestTimestamps, "deleted", deleted);
        }
    }
}
