package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.InvalidRecordException;

/**
 * What a broker says to ListOffsets: {@code UnifiedLog.fetchOffsetByTimestamp} for each of {@code targets}.
 *
 * <p>An answer is {@code [offset, timestamp]}, null for "unknown", or {@code []} if it refuses a record;
 * each segment's largest timestamp is told as well.
 */
public final class OffsetSearch {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        try (OpenedLog opened = new OpenedLog(request)) {
            Map<Long, Long> largestTimestamps = opened.largestTimestamps();
            List<List<Long>> found = new ArrayList<>();
            for (JsonNode target : request.get("targets"))
                found.add(answer(opened, target.asLong()));
            return Map.of("largest_timestamps", largestTimestamps, "found", found);
        }
    }

    private static List<Long> answer(OpenedLog opened, long target) throws IOException {
        try {
            return opened.fetchOffsetByTimestamp(target);
        } catch (InvalidRecordException refused) {
            return List.of();
        }
    }
}
