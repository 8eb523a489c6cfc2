package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Which segments of a log its leader uploads next, after the offset {@code uploaded}, and the bytes that
 * count as only local: {@code RLMCopyTask.candidateLogSegments}, by reflection, and
 * {@code UnifiedLog.onlyLocalLogSegmentsSize}.
 */
public final class RemoteCopy {
    private static final int CUSTOM_METADATA_BYTES = 128;

    public Map<String, Object> answer(JsonNode request) throws Exception {
        FixedTime time = new FixedTime(request.get("now_ms").asLong());
        String directory = request.get("directory").asText();
        try (Metrics metrics = new Metrics();
                RemoteLogManager manager = RemoteExpiry.manager(directory, time, metrics);
                OpenedLog opened = new OpenedLog(request)) {
            Object task = RemoteExpiry.inner(RemoteLogManager.class, "RLMCopyTask", 3)
                .newInstance(manager, RemoteExpiry.PARTITION, CUSTOM_METADATA_BYTES);
            Method candidates = task.getClass().getDeclaredMethod(
                "candidateLogSegments", UnifiedLog.class, Long.class, Long.class);
            candidates.setAccessible(true);
            UnifiedLog log = opened.log();
            long uploaded = request.get("uploaded").asLong();
            List<Long> next = new ArrayList<>();
            for (Object one : (List<?>) candidates.invoke(task, log, uploaded + 1, log.logEndOffset())) {
                Field segment = one.getClass().getDeclaredField("logSegment");
                segment.setAccessible(true);
                next.add(((LogSegment) segment.get(one)).baseOffset());
            }
            log.updateHighestOffsetInRemoteStorage(uploaded);
            return Map.of("next", next, "only_local_bytes", log.onlyLocalLogSegmentsSize());
        }
    }
}
