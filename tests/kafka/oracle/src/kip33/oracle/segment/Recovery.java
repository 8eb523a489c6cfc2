package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.errors.InvalidOffsetException;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegmentOffsetOverflowException;

/**
 * Recovers one segment as a broker does after an unclean shutdown.
 *
 * <p>Outcomes, as Kafka's log loader takes what recovery throws: {@code recovered} leaves the two
 * indexes beside the log; {@code emptied} (offsets not increasing) empties the segment; {@code split}
 * (an offset beyond int32) divides it; {@code load_failure} is everything else, the log stays
 * offline. An overflow that is no overflow (an offset below the base) is refused by the split and so
 * is a load failure too.
 */
public final class Recovery {
    public Map<String, Object> answer(JsonNode request) {
        SegmentSettings settings = SegmentSettings.of(request);
        Map<String, Object> answer = new LinkedHashMap<>();
        try (Partition partition = new Partition(settings)) {
            recover(partition, answer);
        } catch (Throwable failure) {
            // Errors too: the snappy library throws one at a chunk size it finds too large.
            name(answer, "load_failure", failure);
        }
        File log = LogFileUtils.logFile(settings.directory(), settings.baseOffset());
        answer.put("valid_bytes", log.length());
        return answer;
    }

    private static void recover(Partition partition, Map<String, Object> answer) throws IOException {
        try {
            answer.put("truncated_bytes", partition.recover());
            answer.put("outcome", "recovered");
        } catch (LogSegmentOffsetOverflowException overflow) {
            name(answer, overflow.segment.hasOverflow() ? "split" : "load_failure", overflow);
        } catch (InvalidOffsetException notIncreasing) {
            name(answer, "emptied", notIncreasing);
        }
    }

    private static void name(Map<String, Object> answer, String outcome, Throwable thrown) {
        answer.put("outcome", outcome);
        answer.put("exception", thrown.getClass().getSimpleName());
        answer.put("message", String.valueOf(thrown.getMessage()));
    }
}
