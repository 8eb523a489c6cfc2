package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.storage.internals.log.LogSegment;

/**
 * One pass of a broker's retention over a log: {@code UnifiedLog.deleteOldSegments}.
 *
 * <p>Answers what each segment's largest timestamp was before, and the base offsets of those deleted.
 */
public final class Expiry {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        try (OpenedLog opened = new OpenedLog(request)) {
            Map<Long, Long> largestTimestamps = new LinkedHashMap<>();
            for (LogSegment segment : opened.segments())
                largestTimestamps.put(segment.baseOffset(), segment.largestTimestamp());
            opened.log().deleteOldSegments();
            Set<Long> left = opened.log().logSegments().stream()
                .map(LogSegment::baseOffset)
                .collect(Collectors.toSet());
            List<Long> deleted = largestTimestamps.keySet().stream()
                .filter(baseOffset -> !left.contains(baseOffset))
                .toList();
            return Map.of("largest_timestamps", largestTimestamps, "deleted", deleted);
        }
    }
}
