package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.record.FileRecords.TimestampAndOffset;
import org.apache.kafka.storage.internals.log.LogSegment;

/**
 * What a broker says to ListOffsets: {@code UnifiedLog.fetchOffsetByTimestamp} for each of {@code targets}.
 *
 * <p>An answer is {@code [offset, timestamp]}, or null for "unknown"; each segment's largest timestamp is
 * told as well.
 */
public final class OffsetSearch {
    public Map<String, Object> answer(JsonNode request) throws IOException {
        try (OpenedLog opened = new OpenedLog(request)) {
            Map<Long, Long> largestTimestamps = new LinkedHashMap<>();
            for (LogSegment segment : opened.segments())
                largestTimestamps.put(segment.baseOffset(), segment.largestTimestamp());
            List<List<Long>> found = new ArrayList<>();
            for (JsonNode target : request.get("targets")) {
                Optional<TimestampAndOffset> one = opened.log()
                    .fetchOffsetByTimestamp(target.asLong(), Optional.empty())
                    .timestampAndOffsetOpt();
                found.add(one.map(record -> List.of(record.offset, record.timestamp)).orElse(null));
            }
            return Map.of("largest_timestamps", largestTimestamps, "found", found);
        }
    }
}
